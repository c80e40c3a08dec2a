"""Shared memory that MPI leaves behind when its ranks are killed: recorded, and removed later.

A rank records which files in /dev/shm it maps; a world's supervisor does so for ranks that cannot
yet. The next process on the host, or the one that ends the world, removes the files of dead
processes. Files without a record are not touched.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.workers.processes import process_start

SHM = Path("/dev/shm")
_NOTE = re.compile(r"penstock-(\d+)-(\d+)-(\d+)$")  # user, process, when it started


def note_segments(others: Iterable[Path] | None = None) -> None:
    """Record the shared memory that this process maps, or that ``others`` do on its behalf."""
    with suppress(OSError):
        files = sorted(map(str, mapped(os.getpid()) if others is None else others))
        if files:
            if others is not None:
                _own_note().unlink(missing_ok=True)  # an older, shorter record
            # Every user may write there: never follow a link or write into another's file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(_own_note(), flags, 0o600), "wb") as file:
                file.write(os.fsencode("\n".join(files)))


def forget_segments() -> None:
    """Remove this process' own record: it leaves MPI in order."""
    with suppress(OSError):
        _own_note().unlink(missing_ok=True)


def _own_note() -> Path:
    pid = os.getpid()
    return SHM / f"penstock-{os.getuid()}-{pid}-{process_start(pid)}"


def sweep_segments() -> None:
    """Remove what dead processes of this user recorded and left on this host."""
    with suppress(OSError):
        for note in SHM.glob(f"penstock-{os.getuid()}-*"):
            found = _NOTE.match(note.name)
            if not found or process_start(int(found[2])) == int(found[3]) or not is_ours(note):
                continue
            for path in map(Path, os.fsdecode(note.read_bytes()).splitlines()):
                if path.parent == SHM:  # nothing elsewhere
                    path.unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def is_ours(file: Path) -> bool:
    """Return whether this user made a file: every user may write into /dev/shm."""
    found = file.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()


def mapped(pid: int) -> set[Path]:
    """Return the shared memory that a process maps; none if it ended, or is another user's."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    except OSError:
        return set()
    named = [line.split(None, 5)[5] for line in lines if b" /dev/shm/" in line]
    return {Path(os.fsdecode(name)) for name in named if not name.endswith(b"(deleted)")}
