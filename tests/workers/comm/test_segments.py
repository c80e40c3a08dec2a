"""Shared memory of dead ranks is removed; that of others, and what no process noted, stays."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from penstock.workers.comm import segments
from penstock.workers.comm.segments import sweep_segments

SHM = Path("/dev/shm")
RANK = """
import mmap, sys
from penstock.workers.comm.segments import note_segments
held = []
for name in sys.argv[1:]:
    with open(name, "r+b") as file:
        held.append(mmap.mmap(file.fileno(), 0))
note_segments()
print("noted", flush=True)
sys.stdin.readline()
"""


def rank(*mapped):
    """Start a process that maps files and notes them."""
    command, pipe = [sys.executable, "-P", "-c", RANK, *map(str, mapped)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout.readline() == "noted\n"
    return process


def notes(process):
    return list(SHM.glob(f"penstock-{os.getuid()}-{process.pid}-*"))


def test_only_what_a_dead_process_noted_is_removed():
    mine = [SHM / f"penstocktest_{uuid4().hex[:12]}" for _ in range(4)]
    with ExitStack() as stack:
        for path in mine:
            path.write_bytes(bytes(4096))
            stack.callback(path.unlink, missing_ok=True)
        first, second, living, unnoted = mine
        dying, other = rank(first, second), rank(living)
        stack.callback(other.communicate, "\n")
        for _ in range(2):
            assert (len(notes(dying)), len(notes(other))) == (1, 1)
            assert all(path.exists() for path in mine)
            sweep_segments()
        dying.kill()
        dying.communicate()
        sweep_segments()
        assert not first.exists()
        assert not second.exists()
        assert (len(notes(dying)), len(notes(other))) == (0, 1)
        assert living.exists()
        assert unnoted.exists()


def test_nothing_outside_is_removed(tmp_path, tmp_path_factory, monkeypatch):
    """Every user may write to /dev/shm, so a note may hold anything."""
    monkeypatch.setattr(segments, "SHM", tmp_path)
    outside, inside = tmp_path_factory.mktemp("outside") / "thesis", tmp_path / "segment"
    outside.touch()
    inside.touch()
    around = tmp_path / ".." / outside.parent.name / "thesis"
    note = tmp_path / f"penstock-{os.getuid()}-{2**22 + 1}-5"
    note.write_text("\n".join(map(str, (outside, around, inside))))
    sweep_segments()
    assert outside.exists()
    assert not inside.exists()
