"""Who owns which node, and in which order partitions meet."""
