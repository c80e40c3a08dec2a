"""Telling a process from a later one of the same number."""

from __future__ import annotations

from pathlib import Path


def process_start(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine's start; None: it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
