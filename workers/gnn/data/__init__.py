"""The data of one rank of a training run: its block of the graph, features, labels, splits."""
