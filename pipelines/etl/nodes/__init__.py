"""From node tables and the ends of edges to node ids, labels, splits and features."""
