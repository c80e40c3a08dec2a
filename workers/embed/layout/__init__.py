"""Which node lies in which partition, and which edges in which bucket."""
