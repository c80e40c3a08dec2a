"""What one rank of a training holds: its block of the graph, features, labels, splits."""
