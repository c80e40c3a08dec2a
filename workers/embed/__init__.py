"""Embeddings in one worker: partitions of nodes on disk, a buffer of them, buckets of edges."""
