"""Training writes partitions to scratch, and to the run's folder only at checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from embed_runs import same

from penstock import Graph, generate
from penstock.workers.comm.single import SingleRank
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage import direct
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.train import train

OPTIONS = {
    "model": "complex",
    "dim": 8,
    "batch": 16,
    "negatives": 16,
    "epochs": 3,
    "schedule": "constant",
    "partitions": 8,
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A small knowledge graph without held-out edges, so that no best checkpoint is kept."""
    path = tmp_path_factory.mktemp("kg") / "g"
    generate("kg", path, entities=300, triples=2000, relations=5, valid=0.0, quiet=True)
    return Graph.open(path)


@pytest.fixture(params=["one disk", "two disks"])
def disks(request, monkeypatch):
    """Whether scratch and run are on one disk, so that versions are moved instead of copied."""
    whole = Path.replace

    def replace(here, to):
        if here.parent != to.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return whole(here, to)

    if request.param == "two disks":
        monkeypatch.setattr(direct.Path, "replace", replace)
    return bool(request.param == "one disk")


@pytest.fixture
def versions(monkeypatch):
    """The number of versions on scratch and in the run's folder at each write."""
    found = []
    whole = direct.PartitionFiles.open

    def opened(table, partition, *, to_write):
        file = whole(table, partition, to_write=to_write)
        if to_write:
            folders = table.scratch, table.folder
            found.append(tuple(len([*folder.glob("nodes-*")]) for folder in folders))  # type: ignore[arg-type]
        return file

    monkeypatch.setattr(direct.PartitionFiles, "open", opened)
    return found


def run(graph, folder, spare=None, **options):
    folder.mkdir(exist_ok=True)
    training = Training(**{**OPTIONS, **options})
    return train(SingleRank(), TrainTask(graph.path, folder, training, spare=spare))


def test_few_spare_versions_are_enough(graph, tmp_path, monkeypatch, disks, versions):
    """8 partitions with 3 spare versions take 1.4 times the table: checkpoints come sooner."""
    saved, spare = list[int](), 3
    save = Checkpoints.save

    def counted(checkpoints, *given, **more):
        saved.append(len([*checkpoints.folder.glob("nodes-*")]))
        save(checkpoints, *given, **more)

    monkeypatch.setattr(Checkpoints, "save", counted)
    run(graph, tmp_path / "r", epochs=1)
    del versions[:], saved[:]
    run(graph, tmp_path / "r", spare)
    assert len(saved) > 5
    assert max(saved) <= 8 + spare  # in the run's folder, before old versions are removed
    if disks:
        assert max(map(sum, versions)) <= 8 + spare
    else:
        assert max(on_scratch for on_scratch, _ in versions) <= 8
    run(graph, tmp_path / "whole")
    same(tmp_path / "r", tmp_path / "whole")
