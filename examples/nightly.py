"""Run nightly.yaml from Python, and show its results.

python nightly.py [epochs=40 ...]
"""

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock

here = Path(__file__).parent

variables = dict(word.split("=") for word in sys.argv[1:])
report = penstock.run_flow(here / "nightly.yaml", variables=variables, quiet=False)
print(report.text())
if report.state != "passed":
    sys.exit(str(report.failure()))
score = report.stages["classes"]["metrics"]["metrics.test.score"]
print(f"{score:.0%} of the test nodes got their class")

walks = pq.read_table(here / "published/walks/latest")["path"]
print(f"{len(walks):,} walks of {pc.mean(pc.list_value_length(walks)).as_py():.1f} nodes")
rank = pq.read_table(here / "published/central/latest/nodes").sort_by([("pagerank", "descending")])
print("the most central nodes:", *rank["node"][:5].to_pylist())
