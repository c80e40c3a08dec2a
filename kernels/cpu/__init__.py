"""Numba kernels: parallel, cached, typed."""
