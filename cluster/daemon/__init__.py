"""Clusters that stay: ``penstock cluster start``."""
