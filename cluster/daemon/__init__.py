"""Long-running clusters: ``penstock cluster start``."""
