"""The demo: a flow that runs from nothing, and the closing table shows the results."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock import Graph, run_flow
from penstock.pipelines import demo as module
from penstock.pipelines.cli import run
from penstock.pipelines.demo import RESULTS, DemoOptions, run_demo


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setattr(module, "why_alone", lambda: "mpi4py loads no MPI")


@pytest.fixture
def small(monkeypatch):
    """The whole demo, with fewer triples and small graphs; CI runs the README's as it stands."""
    text = module.FLOW.replace("small_graphs: 200", "small_graphs: 30")
    text = text.replace("entities: 2000, triples: 30000", "entities: 400, triples: 4000")
    assert text != module.FLOW
    monkeypatch.setattr(module, "FLOW", text)


def check(folder, nodes, graphs):
    """Check what a whole demo has left."""
    kept = json.loads((folder / "demo.json").read_text())
    stages = {stage["name"]: stage for stage in kept["stages"]}
    assert set(stages) == set(RESULTS)
    assert kept["state"] == "done"
    assert kept["accuracy"] > 0.8
    graph = Graph.open(folder / "graph")
    ids = pq.read_table(folder / "tables/nodes.parquet", columns=["id"])["id"].to_pylist()
    assert sorted(graph.user_ids().to_pylist()) == sorted(ids)
    assert len(ids) == nodes
    predicted = pq.read_table(sorted((folder / "predictions").glob("*.parquet")))
    assert sorted(predicted["id"].to_pylist()) == sorted(ids)
    assert len(pq.read_table(folder / "central/graphs")) == graphs


@pytest.mark.slow
def test_it_runs_from_nothing_on_one_rank_and_then_nothing_is_left_to_do(tmp_path, alone, small):
    folder = tmp_path / "new" / "demo"
    report = run_demo(folder, DemoOptions(nodes=2000), quiet=True)
    check(folder, 2000, graphs=30)
    assert Path(report.report or "").is_file()
    again = run_flow(folder / "flow.yaml")
    assert {one["state"] for one in again.stages.values()} == {"skipped"}


@pytest.mark.mpi
@pytest.mark.slow
def test_it_runs_on_two_ranks(tmp_path, small, capsys):
    """The README's first command, which .ci/run types and times; what it made is checked here."""
    if made := os.environ.get("PENSTOCK_DEMO"):
        assert "ranks: 2," in (Path(made) / "flow.yaml").read_text()
        check(Path(made), 20_000, graphs=200)
        return
    assert run(["demo", str(tmp_path / "demo"), "--nodes", "2000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 2
    check(tmp_path / "demo", 2000, graphs=30)
