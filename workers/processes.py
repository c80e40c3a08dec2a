"""Identify processes beyond their reusable ids, and end those whose parent exited."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)


def process_start(pid: int) -> int | None:
    """Return a process' start in clock ticks since boot; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends.

    It reacts to the end of the thread that started this process: use it only if the parent has one
    thread, or starts processes from one that stays.
    """
    parent = os.getppid()
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of orphaned grandchildren."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # no such call here
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
