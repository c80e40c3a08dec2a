"""A disk that is full, or will be: said before the work where it can be, and never a bug."""

import os
from pathlib import Path

import pytest
from small_disks import mount, unmount

from penstock import Graph, generate, gnn, walk
from penstock.errors import CapacityError
from penstock.output import Pieces
from penstock.pipelines.cli import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("full") / "g"
    generate("sbm", path, nodes=300, seed=1, quiet=True)
    return path


@pytest.fixture
def small(tmp_path):
    """Return what mounts a disk of so many kilobytes; it goes with the test."""
    disk = tmp_path / "small"
    yield lambda kilobytes: mount(disk, f"size={kilobytes}k")
    if disk.is_mount():
        unmount(disk)


def fill(folder, leave):
    """Take the disk but for ``leave`` bytes; return the file that takes it."""
    found = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - leave))
    return filler


def test_checkpoints_are_estimated_before_training(graph, small):
    folder = small(64)
    with pytest.raises(CapacityError, match="checkpoints"):
        gnn.train(graph, folder / "r", epochs=5, cluster=None)
    assert os.listdir(folder) == []


def test_a_disk_that_fills_while_training(graph, small, capsys, monkeypatch):
    monkeypatch.setattr("penstock.pipelines.gnn.training.need_disk_to_train", lambda *_: None)
    folder = small(64)
    assert run(["gnn", "train", str(graph), str(folder / "r"), "--epochs", "5"]) == 1
    said = capsys.readouterr().err
    assert "the disk is full" in said
    assert "bug" not in said
    assert "--resume" in said


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(small):
    import numpy as np

    from penstock.workers.gnn import checkpoint

    folder = small(256)
    path = folder / "last.safetensors"
    checkpoint.save(path, {"a": np.ones(1000, np.float32)}, {}, {"epoch": 1})
    before = path.read_bytes()
    fill(folder, 8192)
    with pytest.raises(CapacityError, match="the disk is full"):
        checkpoint.save(path, {"a": np.ones(10_000, np.float32)}, {}, {"epoch": 2})
    assert path.read_bytes() == before
    assert sorted(os.listdir(folder)) == ["filler", "last.safetensors"]


def test_a_refusal_before_any_work_leaves_nothing(graph, small, capsys):
    folder = small(64)
    for words in (
        ["walk", graph, folder / "w", "--walks", "200"],
        ["gnn", "train", graph, folder / "r"],
    ):
        assert run([str(word) for word in words]) == 1
        said = capsys.readouterr().err
        assert "would not fit on the disk" in said
        assert "--resume" not in said
    assert os.listdir(folder) == []


def test_what_is_done_is_not_asked_for_again(graph, tmp_path, monkeypatch):
    """Walks that did not fit go on once there is room for the rest, not for all of them."""
    folder = tmp_path
    options = {"walks": 200, "length": 40, "quiet": True}
    whole = walk(graph, folder / "whole", **options)
    assert whole.files > 4
    # A disk that fills up when half the parts are there.

    real, written = Pieces.save, []

    def save(records, piece, counts, files):
        if len(written) == whole.files // 2:
            raise OSError(28, "No space left on device", str(records.folder / piece))
        written.append(piece)
        real(records, piece, counts, files)

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "save", save)
        patch.setattr("penstock.pipelines.walk.job.need_disk", lambda *_, **__: None)
        with pytest.raises(CapacityError):
            walk(graph, folder / "w", **options)
    estimates = []
    monkeypatch.setattr(
        "penstock.pipelines.walk.job.need_disk",
        lambda folder, size, what, **_: estimates.append(size),
    )
    walk(graph, folder / "w", resume=True, **options)
    walk(graph, folder / "again", **options)
    assert estimates[0] < 0.7 * estimates[1]
    for name in sorted(p.name for p in (folder / "whole").glob("part-*")):
        assert (folder / "w" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_etl_takes_what_is_kept_off_its_estimate(tmp_path, monkeypatch):
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{i} {i + 1}\n" for i in range(20_000)))
    kept = tmp_path / ".g.partial/scratch"
    kept.mkdir(parents=True)
    (kept / "piece").write_bytes(bytes(100_000))
    asked = []
    monkeypatch.setattr(
        "penstock.pipelines.job.need_disk", lambda folder, size, what: asked.append(size)
    )
    from penstock import etl

    etl(str(edges), tmp_path / "g", resume=True, quiet=True)
    etl(str(edges), tmp_path / "h", quiet=True)
    assert asked[0] == asked[1] - 100_000
    assert Graph.open(Path(tmp_path / "g")).num_nodes == 20_001


def test_who_holds_a_small_disk_is_named_and_it_goes_all_the_same(tmp_path):
    """What other tests rely on: a disk that stayed would be in the way of every later run."""
    disk = mount(tmp_path / "small", "size=64k")
    with (disk / "file").open("w"), pytest.raises(pytest.fail.Exception) as raised:
        unmount(disk, seconds=0.1)
    assert f"{os.getpid()} " in str(raised.value)
    assert str(disk / "file") in str(raised.value)
    assert not disk.is_mount()
