"""Workers that somebody else started: other processes, in another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Graph, etl
from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec


def test_relative_paths_mean_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    with connect(ClusterSpec(cluster="local", workers=2), input_bytes=0) as owner:
        monkeypatch.chdir(tmp_path / "ours")
        Path("edges.csv").write_text("src,dst\n1,2\n2,3\n")
        Path("valid.csv").write_text("src,dst\n1,3\n")
        cluster = ClusterSpec(cluster=owner.scheduler.address)
        report = etl("edges.csv", "g", cluster=cluster, valid="valid.csv", min_degree=1)
    assert report.heldout == {"valid": 1}
    graph = Graph.open(tmp_path / "ours" / "g")
    graph.validate()
    assert (graph.num_nodes, graph.num_edges) == (3, 4)
    assert not list((tmp_path / "theirs").iterdir())
