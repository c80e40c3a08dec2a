"""Full-batch training of graph neural networks: what one rank does."""
