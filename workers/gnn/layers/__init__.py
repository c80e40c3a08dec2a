"""The layers of a GNN on one rank, and their network."""
