"""Telling a process from a later one of the same number, and ending those whose parent has gone."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)


def process_start(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine's start; None: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def runs_still(pid: Any, began: Any) -> bool:
    """Return whether the process of that number is there which began at that time, of psutil.

    Both may be whatever a file says. A zombie, for which nobody has waited yet, has ended.
    """
    import psutil

    try:
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(began)) < 1
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError, TypeError):
        return False


def process_began(pid: int) -> float:
    """Return what ``runs_still`` takes, in seconds since 1970; 0: the process has ended."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends.

    It does so when the thread ends that started this process: only where the parent has one thread,
    or starts processes from one that stays.
    """
    parent = os.getppid()
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before this one was watched
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of what the children of this process leave behind."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # there is no such call
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
