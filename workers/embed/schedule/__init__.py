"""In which order buckets are trained, and whether that hides the swaps of partitions."""
