"""In a folder where others may write, no known name of ours is written through a symbolic link."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.spec import ClusterSpec
from penstock.errors import OutputExists
from penstock.output_lock import output_lock
from penstock.pipelines.etl import etl
from penstock.pipelines.job.partial import partial_output
from penstock.workers.comm import segments
from penstock.workers.locks import try_lock

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
