"""``--verify`` finds a flipped bit before anything is computed with it; nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import gnn, partition_graph, walk
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CorruptFile
from penstock.pipelines.cli import run

THREADS = ("--cluster", "threads", "-q")


def flip(path: Path) -> None:
    """Change a bit of the last number of a file, so that it is still in bounds."""
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("job", ["walk", "partition"])
def test_a_flipped_bit_of_the_graph(
    make_graph: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str
) -> None:
    graph = make_graph(weights=True).path
    command = {
        "walk": ["walk", str(graph), str(tmp_path / "w"), "--length", "3", *THREADS],
        "partition": ["partition", str(graph), "-k", "2", "-q"],
    }[job]
    assert run([*command, "--verify"]) == 0
    flip(graph / "shards/00000/weights.npy")
    assert run([*command, "--overwrite"]) == 0  # a weight is a weight
    capsys.readouterr()
    assert run([*command, "--overwrite", "--verify"]) == 1
    assert "weights.npy" in capsys.readouterr().err


@pytest.mark.mpi
@pytest.mark.slow
def test_a_flipped_bit_of_a_partition(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph(weights=True).path
    partition_graph(graph, k=2, quiet=True)
    flip(next(graph.glob("partition/k2/parts/00001/weights.npy")))
    cluster = ClusterSpec(cluster="mpi", workers=2)
    walk(graph, tmp_path / "w", length=3, parts=2, cluster=cluster)
    with pytest.raises(CorruptFile, match=r"parts/00001/weights.npy"):
        walk(graph, tmp_path / "v", length=3, parts=2, cluster=cluster, verify=True)
    assert not (tmp_path / "v").exists()


def test_a_flipped_bit_before_training_and_predicting(make_graph: Any, tmp_path: Path) -> None:
    graph = make_graph(features="dense", labels=3).path
    options = {"epochs": 2, "hidden": 4}
    gnn.train(graph, tmp_path / "run", verify=True, **options)
    flip(graph / "features/00000.npy")
    gnn.train(graph, tmp_path / "other", **options)
    with pytest.raises(CorruptFile, match=r"features/00000.npy"):
        gnn.train(graph, tmp_path / "third", verify=True, **options)
    with pytest.raises(CorruptFile, match=r"features/00000.npy"):
        gnn.predict(tmp_path / "run", tmp_path / "out", verify=True)
    assert not (tmp_path / "third").exists()
