"""A flow that is killed midway ends as if it had not been. Jobs: tests/faults."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from golden import draws, run, start
from processes import below, ended, until


def test_a_flow_that_was_killed_resumes_the_stage_that_ran():
    table = {"src": draws(100_000, 20_000, 0), "dst": draws(100_000, 20_000, 1)}
    pd.DataFrame(table).to_parquet("edges.parquet")
    Path("f.yaml").write_text(
        "name: f\nfolder: out\ncluster: threads\nstages:\n"
        "  graph: {job: etl, input: edges.parquet}\n"
        "  walks: {job: walk, input: graph, length: 40, walks: 10, publish: published}\n"
    )
    partial = Path("out/.walks.partial/walks")
    with start("run f.yaml --no-report") as process:
        until(lambda: partial.is_dir() and len([*partial.glob("*.parquet")]) > 1, process, 240)
        family = below(process)
        process.kill()
    assert ended(*(one.pid for one in family))
    assert not Path("published").exists()
    again = run("run f.yaml --no-report")
    assert {name: one["state"] for name, one in again["stages"].items()} == {
        "graph": "skipped",
        "walks": "done",
    }
    assert again["stages"]["walks"]["report"]["resumed_files"] > 0
    run("walk out/graph whole --length 40 --walks 10")
    assert pq.read_table("published/latest").equals(pq.read_table("whole"))
    assert run("runs list")[-1]["state"] == "passed"
