"""The layers of a GNN on one rank, and the network that they make."""
