"""Walks in one worker: rows made ready, and a rank of walks on a partitioned graph."""
