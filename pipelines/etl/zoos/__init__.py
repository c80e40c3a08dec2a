"""Zoos of small graphs: read, built and written."""
