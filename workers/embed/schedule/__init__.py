"""The order in which buckets are trained, and whether training hides the swaps of partitions."""
