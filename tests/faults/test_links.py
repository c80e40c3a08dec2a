"""In a folder where others may write, no known name of ours is written through a symbolic link."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock import Graph, partition_graph
from penstock.cluster.spec import ClusterSpec
from penstock.errors import OutputExists, UsageError
from penstock.files import append_text, claimed, save_text
from penstock.output_lock import output_lock
from penstock.pipelines.etl import etl
from penstock.pipelines.gnn.run import FORMAT, Run
from penstock.pipelines.job.partial import partial_output
from penstock.pipelines.job.run_folder import KIND, run_folder
from penstock.workers.comm import segments
from penstock.workers.epoch_lines import keep_epochs
from penstock.workers.gnn import checkpoint
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.local_copies import LocalCopies
from penstock.workers.locks import try_lock
from penstock.workers.resources.scratch import Scratch
from penstock.workers.resources.storage import Speed
from penstock.workers.source import Source

TEXT = "precious\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text(TEXT)
    return path


def work(out: Path, **options: Any) -> None:
    more = {"command": "penstock etl", "kind": "graph", "resume": True, "overwrite": False}
    with partial_output(out, {"a": 1}, **{**more, **options}):
        raise KeyboardInterrupt


def test_the_lock_of_a_run(tmp_path: Path, victim: Path) -> None:
    (tmp_path / ".g.lock").symlink_to(victim)
    with pytest.raises(OutputExists, match=r"lock is a symbolic link, and we write nothing thro"):
        work(tmp_path / "g")
    assert victim.read_text() == TEXT


def test_the_record_of_a_run(tmp_path: Path, victim: Path) -> None:
    (tmp_path / ".g.partial").mkdir()
    (tmp_path / ".g.partial/run.json").symlink_to(victim)
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path / "g", resume=False)
    assert victim.read_text() == TEXT
    assert not (tmp_path / ".g.partial/run.json").is_symlink()


@pytest.mark.parametrize("name", [".g.partial", ".g.partial/graph", ".g.partial/scratch"])
def test_the_folders_of_a_run(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(OutputExists, match="is a symbolic link"):
        work(tmp_path / "g")
    assert list(elsewhere.iterdir()) == []


def test_a_command_says_it(tmp_path: Path, victim: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("1 2\n")
    (tmp_path / ".g.lock").symlink_to(victim)
    with pytest.raises(OutputExists, match="Remove it, and ask who made it"):
        etl(edges, tmp_path / "g", cluster=ClusterSpec(cluster="threads"))
    assert victim.read_text() == TEXT


def test_the_lock_of_a_training(tmp_path: Path, victim: Path) -> None:
    (tmp_path / ".run.lock").symlink_to(victim)
    with pytest.raises(OutputExists, match="is a symbolic link"), output_lock(tmp_path / "run"):
        pass
    assert victim.read_text() == TEXT


def test_locks_on_scratch_disks(tmp_path: Path, victim: Path) -> None:
    (tmp_path / ".lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(tmp_path / ".lock")
    assert victim.read_text() == TEXT


def test_notes_in_shared_memory(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_SHM", tmp_path)
    monkeypatch.setattr(segments, "_mapped", lambda pid: ["/dev/shm/x"])
    note = tmp_path / (
        f"penstock-{os.getuid()}-{os.getpid()}-{segments.process_start(os.getpid())}"
    )
    note.symlink_to(victim)
    segments.note_segments()
    assert victim.read_text() == TEXT


def test_a_lock_leaves_what_it_finds(tmp_path: Path) -> None:
    """A lock file is opened, not truncated: what stands there may be another's."""
    (tmp_path / ".g.lock").write_text(TEXT)
    with output_lock(tmp_path / "g"):
        assert (tmp_path / ".g.lock").read_text() == TEXT


# -- what lies under an output, and where nothing else is hidden ---------------------------------

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user's links")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{n} {(n + 1) % 12}\n" for n in range(12)))
    etl(edges, tmp_path / "g", cluster=ClusterSpec(cluster="threads"))
    return Graph.open(tmp_path / "g")


def strangers_link(path: Path, to: Path) -> None:
    path.symlink_to(to)
    os.lchown(path, NOBODY, NOBODY)


@root
def test_a_strangers_link_in_place_of_an_output(graph: Graph, tmp_path: Path) -> None:
    """With --overwrite it led to another graph of this user's, which was replaced."""
    before = (graph.path / "graph.json").read_bytes()
    strangers_link(tmp_path / "out", graph.path)
    with pytest.raises(OutputExists, match="is a symbolic link that user 65534 made"):
        etl(tmp_path / "edges.txt", tmp_path / "out", overwrite=True)
    assert (graph.path / "graph.json").read_bytes() == before


@root
def test_a_strangers_link_in_place_of_partitions(graph: Graph, tmp_path: Path) -> None:
    strangers_link(graph.path / "partition", tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(OutputExists, match="partition is a symbolic link that user 65534 made"):
        partition_graph(graph, k=2, method="random")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_own_link_in_place_of_partitions_is_meant(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (graph.path / "partition").symlink_to(tmp_path / "disk")
    partition_graph(graph, k=2, method="random")
    assert (tmp_path / "disk/k2/partition.json").is_file()


def folder_of(graph: Graph, out: Path, *, resume: bool = False, overwrite: bool = False) -> Any:
    """Open the folder of a training run as its job does."""
    run = Run(
        str(graph.path), graph.digest, Model((Layer("gcn", channels=2),)), Training(), "class", 4
    )
    job: Any = SimpleNamespace(
        out=out,
        options=SimpleNamespace(resume=resume, overwrite=overwrite),
        command="penstock gnn train",
        kind=KIND,
        first_manifest=run.to_dict,
        differences=lambda before: [],
    )
    return run_folder(job, FORMAT)


def test_what_lies_hidden_next_to_something_that_is_no_run(graph: Graph, tmp_path: Path) -> None:
    """It took the place of the directory, which was removed before anybody looked what it is."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.tex").write_text(TEXT)
    (tmp_path / ".precious.old").mkdir()
    (tmp_path / ".precious.old/run.json").write_text("{}")
    with (
        pytest.raises(OutputExists, match="precious exists and is not a run"),
        folder_of(graph, tmp_path / "precious", overwrite=True),
    ):
        pass
    assert (tmp_path / "precious/thesis.tex").read_text() == TEXT


@pytest.mark.parametrize("saved", [False, True])
def test_a_run_that_a_killed_overwrite_left_aside(
    graph: Graph, tmp_path: Path, *, saved: bool
) -> None:
    """It goes once the new run has a checkpoint; one that fails before brings it back."""
    out, old = tmp_path / "run", tmp_path / ".run.old"
    for folder in (out, old):
        with folder_of(graph, folder):
            (folder / "which").write_text(folder.name)
    if saved:
        (out / "checkpoints").mkdir()
        (out / "checkpoints/last.npy").touch()
    with (
        pytest.raises(OSError, match="cable"),
        folder_of(graph, out, resume=True) as partial,
    ):
        assert (partial.result / "which").read_text() == "run"
        assert old.exists() != saved
        raise OSError("a cable")
    assert (out / "which").read_text() == ("run" if saved else ".run.old")
    assert not old.exists()


@pytest.mark.parametrize("old", ["link", pytest.param("stranger", marks=root)])
def test_a_run_that_another_user_hid(graph: Graph, tmp_path: Path, old: str) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "run.json").write_text("{}")
    if old == "link":
        (tmp_path / ".run.old").symlink_to(hidden)
    else:
        os.chown(hidden, NOBODY, NOBODY)
        hidden.rename(tmp_path / ".run.old")
    with folder_of(graph, tmp_path / "run") as partial:
        assert Run.load(partial.result).graph == str(graph.path)


@root
def test_an_output_that_another_user_hid(graph: Graph, tmp_path: Path) -> None:
    graph.path.rename(tmp_path / ".out.old")
    os.chown(tmp_path / ".out.old", NOBODY, NOBODY)
    with claimed(tmp_path / "out", overwrite=False, kind="graph") as out:
        assert not out.exists()


@pytest.mark.parametrize("name", ["checkpoints", ".run.old"])
def test_the_folders_of_a_training(graph: Graph, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with folder_of(graph, tmp_path / "run"):
        pass
    if name == "checkpoints":
        (tmp_path / "run" / name).symlink_to(elsewhere)
    else:
        (tmp_path / name).symlink_to(elsewhere)
    more = {"resume": name == "checkpoints", "overwrite": name != "checkpoints"}
    with (
        pytest.raises(OutputExists, match="is a symbolic link, and we write nothing through it"),
        folder_of(graph, tmp_path / "run", **more),
    ):
        pass
    assert list(elsewhere.iterdir()) == []


def test_a_checkpoint_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputExists, match="checkpoints is a symbolic link"):
        checkpoint.save(tmp_path / "checkpoints/last.safetensors", {"w": np.ones(2)}, {}, {})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_files_of_a_training(tmp_path: Path, victim: Path) -> None:
    """plan.txt and profile.json are written whole, metrics.jsonl is appended to."""
    for name in ("plan.txt", "metrics.jsonl"):
        (tmp_path / name).symlink_to(victim)
    save_text(tmp_path / "plan.txt", "x")
    assert (tmp_path / "plan.txt").read_text() == "x"
    assert not (tmp_path / "plan.txt").is_symlink()
    with pytest.raises(OutputExists, match="metrics.jsonl is a symbolic link"):
        append_text(tmp_path / "metrics.jsonl", "x")
    with pytest.raises(OutputExists, match="metrics.jsonl is a symbolic link"):
        keep_epochs(tmp_path / "metrics.jsonl", 0)
    assert victim.read_text() == TEXT


# -- scratch disks and copies --------------------------------------------------------------------


def test_the_scratch_folder_of_a_user(tmp_path: Path) -> None:
    """Copies of graphs lie below it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"penstock-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="belongs to another user|cannot be used"):
        Scratch(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_locks_of_copies_of_graphs(graph: Graph, tmp_path: Path, victim: Path) -> None:
    """Nobody else can write in the folder for copies; no link is followed there all the same."""
    copies = tmp_path / "copies"
    copies.mkdir()
    source = Source.read(graph.path, ())
    (copies / f"{source.name}.lock").symlink_to(victim)
    mine = LocalCopies(
        lambda: tmp_path,
        lambda: copies,
        speed=lambda path: Speed.SHARED if path == graph.path else Speed.SSD,
    )
    with pytest.raises(OSError, match="symbolic links"):
        mine(graph.path)
    assert victim.read_text() == TEXT
