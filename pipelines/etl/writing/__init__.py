"""From batches of edges to shards of a graph."""
