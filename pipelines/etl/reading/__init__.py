"""From input files to clean batches of edges."""
