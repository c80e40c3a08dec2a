"""CUDA kernels, compiled lazily through CuPy from the .cu files here."""
