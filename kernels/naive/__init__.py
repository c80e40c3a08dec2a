"""The truth, in plain NumPy: short, slow, and what the other backends are tested against."""
