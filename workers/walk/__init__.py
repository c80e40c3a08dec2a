"""Walks in one worker: prepared rows, and a rank of walks on a partitioned graph."""
