"""Shared by the CUDA kernels of graph neural networks."""
