"""The reference in plain NumPy: short, slow, and the standard for tests of the other backends."""
