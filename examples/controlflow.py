"""The result of controlflow.yaml: of each function, the block on most paths.

penstock run controlflow.yaml && python controlflow.py
"""

from pathlib import Path

import pyarrow.parquet as pq

published = Path(__file__).parent / "published"

blocks = pq.read_table(published / "central/latest/nodes").sort_by([("betweenness", "descending")])
first = {}
for row in blocks.to_pylist():
    first.setdefault(row["graph_id"], row)
for graph, row in sorted(first.items())[:10]:
    print(f"function {graph}: block {row['node']}, betweenness {row['betweenness']:.3f}")
print(f"{len(first)} functions, {len(blocks)} blocks")
