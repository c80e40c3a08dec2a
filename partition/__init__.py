"""The owner of each node, and the order in which partitions meet."""
