"""Shared memory of dead ranks is removed; that of others, and what no process noted, stays."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.workers.comm import segments
from penstock.workers.comm.segments import sweep_segments

SHM = Path("/dev/shm")
RANK = """
import mmap, sys
from pathlib import Path
from penstock.workers.comm.segments import forget_segments, note_segments
held = []
for name in sys.argv[1:]:
    with open(name, "r+b") as file:
        held.append(mmap.mmap(file.fileno(), 0))
    if name.endswith("unlinked"):
        Path(name).unlink()
note_segments()
print("noted", flush=True)
sys.stdin.readline()
forget_segments()
print("forgotten", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def segment():
    """Make files in /dev/shm."""
    made = []

    def make(ending=""):
        path = SHM / f"penstocktest_{uuid4().hex[:12]}_{ending}"
        path.write_bytes(bytes(4096))
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def rank():
    """Start a process that maps files and notes them; it waits for a line, and then for another."""
    started = []

    def start(*mapped):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", RANK, *map(str, mapped)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "noted\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def notes(pid):
    return list(SHM.glob(f"penstock-{os.getuid()}-{pid}-*"))


def test_only_what_a_dead_process_noted_is_removed(segment, rank):
    first, second, living, unnoted = (segment() for _ in range(4))
    dying, other = rank(first, second), rank(living)
    assert len(notes(dying.pid)) == 1
    sweep_segments()
    assert first.exists()
    assert len(notes(dying.pid)) == 1
    dying.kill()
    dying.wait()
    sweep_segments()
    assert not first.exists()
    assert not second.exists()
    assert not notes(dying.pid)
    assert living.exists()
    assert len(notes(other.pid)) == 1
    assert unnoted.exists()
    sweep_segments()  # once more: there is nothing left


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that takes the place of /dev/shm for notes."""
    monkeypatch.setattr(segments, "_SHM", tmp_path)
    return tmp_path


def note_of(folder, pid, started, *paths, user=None):
    user = os.getuid() if user is None else user
    note = folder / f"penstock-{user}-{pid}-{started}"
    note.write_text("\n".join(map(str, paths)))
    return note


# Every user may write to /dev/shm, so a note may hold anything.


def test_nothing_outside_is_removed(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "thesis"
    outside.touch()
    inside = folder / "segment"
    inside.touch()
    note_of(folder, 2**22 + 1, 5, outside, folder / ".." / outside.parent.name / "thesis", inside)
    sweep_segments()
    assert outside.exists()
    assert not inside.exists()
