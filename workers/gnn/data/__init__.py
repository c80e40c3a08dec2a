"""What one rank of a training run holds: its block of the graph, features, labels, splits."""
