"""What CUDA kernels of graph neural networks share."""
