"""The result of knowledge.yaml: who buys like whom, and what a buyer may buy next.

penstock run knowledge.yaml && python knowledge.py
"""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import penstock

here = Path(__file__).parent

paths = pq.read_table(here / "published/paths/latest")["path"].to_pylist()
paths = [path for path in paths if len(path) > 2]  # buyer, product, buyer, product, ...
buyer = paths[0][0]
others = Counter(one for path in paths if path[0] == buyer for one in path[2::2] if one != buyer)
for other, count in others.most_common(3):
    print(f"{buyer} buys like {other}, whom its walk met {count} times")

answers = penstock.embed.predict(here / "knowledge/model", head=buyer, relation="bought", top=3)
for answer in answers.answers:
    print(f"{buyer} may buy {answer['id']}, score {answer['score']:.2f}")
