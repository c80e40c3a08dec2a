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
        files = _mapped(os.getpid()) if others is None else sorted(map(str, others))
        if files:
            if others is not None:
                _own_note().unlink(missing_ok=True)  # an older, shorter record
            # Every user may write there: never follow a link or write into another's file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(_own_note(), flags, 0o600), "w", encoding="utf-8") as file:
                file.write("\n".join(files))


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
            if not found or process_start(int(found[2])) == int(found[3]) or not _is_ours(note):
                continue
            for path in map(Path, note.read_text(encoding="utf-8").splitlines()):
                if path.parent == SHM:  # nothing elsewhere
                    path.unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def _is_ours(note: Path) -> bool:
    """Return whether this user wrote a record: every user may write into /dev/shm."""
    found = note.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()


def _mapped(pid: int) -> list[str]:
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    paths = {line.split(None, 5)[5] for line in maps.splitlines() if " /dev/shm/" in line}
    return sorted(path for path in paths if not path.endswith("(deleted)"))
