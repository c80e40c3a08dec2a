"""A flow that is killed midway ends as if it had not been. Jobs: tests/faults."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from golden import columns, draws, run, start
from processes import until


def test_a_flow_that_was_killed_goes_on() -> None:
    table = {"src": draws(200_000, 50_000, 0), "dst": draws(200_000, 50_000, 1)}
    pd.DataFrame(table).to_parquet("edges.parquet")
    Path("f.yaml").write_text(
        "name: f\nfolder: out\nstages:\n"
        "  graph: {job: etl, input: edges.parquet}\n"
        "  walks: {job: walk, input: graph, length: 40, walks: 5, publish: published}\n"
    )
    with start("run f.yaml --no-report") as process:
        until(Path("out/graph").exists, process)
        process.kill()
    assert not Path("published").exists()
    assert run("run f.yaml --no-report")["state"] == "passed"
    run("walk out/graph whole --length 40 --walks 5")
    assert columns("published/latest") == columns("whole")
    assert run("runs list")[-1]["state"] == "passed"
