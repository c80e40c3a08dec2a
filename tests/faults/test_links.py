"""Where everybody may write, nothing is written through a symbolic link."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Graph
from penstock.cluster.spec import ClusterSpec
from penstock.errors import OutputExists, UsageError
from penstock.locks import try_lock
from penstock.output_lock import output_lock
from penstock.pipelines.etl import etl
from penstock.pipelines.gnn.run import FORMAT, Run
from penstock.pipelines.job.run_folder import KIND, run_folder
from penstock.workers.comm import segments
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.local_copies import LocalCopies
from penstock.workers.resources.scratch import Scratch
from penstock.workers.resources.storage import Speed
from penstock.workers.source import Source

TEXT = "precious\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text(TEXT)
    return path


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


# -- what a killed overwrite left -----------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{n} {(n + 1) % 12}\n" for n in range(12)))
    etl(edges, tmp_path / "g", cluster=ClusterSpec(cluster="threads"))
    return Graph.open(tmp_path / "g")


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
