"""Flows with ``incremental``: stages start from previous outputs, and every Nth run is whole."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Graph
from penstock.errors import UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.flow.document import read_flow

FLOW = """
folder: out
parallel: 1
incremental: true
rebuild_every: 3
stages:
  graph: {job: etl, input: edges.parquet, directed: true}
  parts: {job: centrality, input: zoo.parquet, format: zoo, metrics: pagerank}
  vectors:
    {job: word2vec, input: graph, dim: 4, walks: 2, length: 5, sample: 0,
     init: "{{previous}}", share: 0.01}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    return tmp_path


def write_day(day):
    """Write a ring whose nodes come and go, and three small graphs, of which one changes."""
    ring = np.arange(day, day + 50)
    table = {"src": [f"n{n}" for n in ring], "dst": [f"n{n}" for n in np.roll(ring, 1)]}
    pq.write_table(pa.table(table), "edges.parquet")
    chain = [(2, number, number + 1) for number in range(day + 4)]
    ends = [(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2), (1, 2, 0), *chain]
    rows = dict(zip(("graph_id", "src", "dst"), zip(*ends, strict=True), strict=True))
    pq.write_table(pa.table({name: list(each) for name, each in rows.items()}), "zoo.parquet")


def night(capsys, *more, code=0):
    """Run the flow and return its stages."""
    capsys.readouterr()
    assert run(["run", "flow.yaml", "--json", "--no-report", *more]) == code
    return json.loads(capsys.readouterr().out)["stages"]


def ids():
    graph = Graph.open("out/graph")
    return dict(zip(graph.user_ids(np.arange(graph.num_nodes)).to_pylist(), range(50), strict=True))


def test_a_stage_starts_from_its_previous_output_and_every_third_run_is_whole(home, capsys):
    write_day(1)
    stages = night(capsys)
    whole, words = [stages["graph"]["rebuilt"]["run"]], [stages["vectors"]["report"]["words"]]
    first = ids()
    assert {one["state"] for one in night(capsys).values()} == {"skipped"}
    Path("edges.parquet").write_text("not Parquet")
    assert night(capsys, code=1)["graph"]["state"] == "failed"
    for day, based in ((2, True), (3, True), (4, False)):
        write_day(day)
        stages = night(capsys)
        assert {one["based"] for one in stages.values()} == {based}
        whole.append(stages["graph"]["rebuilt"]["run"])
        words.append(stages["vectors"]["report"]["words"])
        if based:
            kept = {"what": "graphs", "kept": 2, "made": 1}
            assert stages["parts"]["report"]["from_base"] == kept
            assert stages["graph"]["rebuilt"]["runs_since"] == day - 1
            assert stages["graph"]["rebuilt"]["seconds"] > 0
            now = ids()
            assert all(now.get(name, number) == number for name, number in first.items())
    assert whole[0] == whole[1] == whole[2] != whole[3]
    assert max(words[1], words[2]) < min(words[0], words[3]) / 2
    assert [*ids()] == sorted(ids())
    assert not Path("out/.flow/previous").exists()
    Path("flow.yaml").write_text(FLOW.replace("directed: true", "directed: false"))
    # A refused base is not the end: it has a direction.
    graph = night(capsys, "--only", "graph")["graph"]
    assert (graph["state"], graph["based"]) == ("done", False)
    assert graph["why_whole"]
    assert not Graph.open("out/graph").manifest.directed


def test_only_stages_with_a_base_are_incremental(home):
    stages = """
  g: {job: etl, input: e.parquet}
  own: {job: etl, input: e.parquet, base: other}
  warm: {job: word2vec, input: g, init: "{{previous}}"}
  never: {job: etl, input: e.parquet, incremental: false}
  near: {job: vectors export, input: v.parquet, format: npy}
  f: {python: "f:f", input: g}
"""

    def incremental(text):
        Path("flow.yaml").write_text(text)
        return {n for n, one in read_flow(home / "flow.yaml").stages.items() if one.incremental}

    assert incremental(f"incremental: true\nstages: {stages}") == {"g", "warm"}
    more = 'nodes: n.parquet, feature_columns: [f], features_as: "{{previous}}"'
    for text, based in (
        (f"incremental: true\nstages: {{g: {{job: etl, input: e, {more}}}}}", True),
        (f"stages: {{g: {{job: etl, input: e, {more}}}}}", False),
    ):
        Path("flow.yaml").write_text(text)
        assert ("base" in read_flow(home / "flow.yaml").stages["g"].with_base) == based
    assert incremental("stages: {g: {job: etl, input: e, incremental: true}}") == {"g"}
    for bad in (
        "stages: {g: {job: generate sbm, incremental: true}}",
        "stages: {f: {python: 'f:f', incremental: true}}",
        "rebuild_every: 3\nstages: {g: {job: etl, input: e}}",
        "incremental: true\nrebuild_every: 0\nstages: {g: {job: etl, input: e}}",
    ):
        with pytest.raises(UsageError):
            incremental(bad)
