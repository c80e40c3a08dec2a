"""Clusters: workers on this machine or elsewhere, and schedulers that already run."""
