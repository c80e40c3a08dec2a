"""The result of social.yaml: who matters most, who is near them, who is like them.

penstock run social.yaml && python social.py
"""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import penstock

published = Path(__file__).parent / "published"

rank = pq.read_table(published / "rank/latest/nodes").sort_by([("pagerank", "descending")])
account = rank["node"][0].as_py()
print(f"account {account} matters most, with a PageRank of {rank['pagerank'][0].as_py():.4f}")

paths = pq.read_table(published / "near/latest")["path"].to_pylist()
visits = Counter(node for path in paths if path[0] == account for node in path if node != account)
for node, count in visits.most_common(5):
    print(f"  near it: {node}, which its walks visited {count} times")

found = penstock.similar(published / "vectors/latest", [account], k=5)
for node, score in found.neighbours[account]:
    print(f"  like it: {node}, cosine {score:.2f}")
