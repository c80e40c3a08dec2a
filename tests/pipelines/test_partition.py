import errno
from dataclasses import replace

import numpy as np
import pytest

from penstock import Graph, partition_graph
from penstock.csr import CSR
from penstock.errors import CapacityError, OutputExists
from penstock.partition.part import Partition
from penstock.pipelines.cli import run
from penstock.writer import create_graph


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    block = rng.integers(0, 2, 400)
    pairs = rng.integers(0, 400, (6000, 2))
    pairs = pairs[(block[pairs[:, 0]] == block[pairs[:, 1]]) | (rng.random(6000) < 0.05)]
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    with create_graph(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(pairs[:, 0], pairs[:, 1], 400), shard_edges=2000)
        writer.nodes([f"user-{i}" for i in range(400)], label=block)
        writer.features(rng.random((400, 16)).astype(np.float32))
        writer.manifest = replace(writer.manifest, directed=False, labels="class")
    return tmp_path / "g"


def test_the_same_seed_writes_the_same_files(path):
    partition_graph(path, k=4, seed=3, quiet=True)
    one = Partition.of(Graph.open(path), 4).manifest.files
    partition_graph(path, k=4, seed=3, overwrite=True, quiet=True)
    assert Partition.of(Graph.open(path), 4).manifest.files == one


def test_an_existing_partition_is_kept_unless_told(path):
    partition_graph(path, k=2, method="greedy", quiet=True)
    with pytest.raises(OutputExists):
        partition_graph(path, k=2, method="random", quiet=True)
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "greedy"
    partition_graph(path, k=2, method="random", overwrite=True, quiet=True)
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "random"


def test_a_folder_that_is_not_ours_is_never_replaced(path):
    theirs = path / "partition" / "k2"
    theirs.mkdir(parents=True)
    (theirs / "thesis.tex").write_text("years")
    with pytest.raises(OutputExists):
        partition_graph(path, k=2, overwrite=True, quiet=True)
    assert (theirs / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["-k", "0"], 2),
        (["-k", "401"], 1),
        (["-k", "2", "--method", "voodoo"], 2),
        (["-k", "2", "--method", "metis", "--memory-limit", "1kB"], 1),
    ],
)
def test_bad_requests_make_nothing(path, arguments, code):
    assert run(["partition", str(path), *arguments]) == code
    assert not (path / "partition").exists()


def test_too_small_a_disk_is_told_before_the_run(path, monkeypatch):
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(CapacityError):
        partition_graph(path, k=2, quiet=True)


def test_a_disk_that_fills_up_leaves_the_old_partition(path, monkeypatch):
    partition_graph(path, k=2, method="greedy", quiet=True)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penstock.partition.build.columns.GrowingArray.append", full)
    with pytest.raises(CapacityError):
        partition_graph(path, k=2, method="random", overwrite=True, quiet=True)
    assert [found.name for found in (path / "partition").iterdir()] == ["k2"]
    assert Partition.of(Graph.open(path), 2).manifest.made_by == "greedy"


def test_what_metis_cannot_hold_is_streamed(path):
    assert partition_graph(path, k=2, memory_limit="1kB", quiet=True).made_by == "streaming"
