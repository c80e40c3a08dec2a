"""The partition of each node, and the bucket of each edge."""
