"""Sizes as people write them, and checks that a job fits before it starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from penstock.errors import CapacityError, UsageError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str | int) -> int:
    """Return bytes: ``1500000000``, ``"1.5GB"``, ``"512MiB"`` and ``"2g"`` are all read."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{text!r} is not a size", expected="something like 1.5GB or 512MiB")
    return int(float(match[1]) * _UNITS[match[2]])


def format_bytes(count: float) -> str:
    """Return a size for people: 1234567 -> ``1.2 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB" if count < 999.5 else f"{count:.0f} TB"


def format_count(count: float) -> str:
    """Return a count for people: 2400000 -> ``2.4 M``."""
    for unit in ("", "k", "M"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}".rstrip()
        count /= 1000
    return f"{count:.3g} G" if count < 999.5 else f"{count:.0f} G"


def need_disk(folder: Path, size: int, purpose: str) -> None:
    """Raise CapacityError unless ``folder``'s disk has ``size`` bytes free."""
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if free < size:
        raise CapacityError(
            f"{purpose} does not fit on the disk of {folder}",
            expected=f"about {format_bytes(size)} free",
            got=format_bytes(free),
            remedy="Free some space or write to another disk",
        )


def need_memory(size: int, purpose: str, *, remedy: str, limit: int | None = None) -> None:
    """Raise CapacityError unless ``size`` bytes fit into ``limit`` (default: what is available)."""
    available = available_memory() if limit is None else limit
    if size > available:
        raise CapacityError(
            f"{purpose} does not fit in memory",
            expected=f"about {format_bytes(size)}",
            got=format_bytes(available),
            remedy=remedy,
        )


def available_memory() -> int:
    """Return how many bytes this process may still take: of the machine, or of its control group.

    Containers and batch systems set limits that the machine's figures do not show; beyond them
    the kernel kills without a word.
    """
    import psutil

    return min([int(psutil.virtual_memory().available), *_group_limits(Path("/"))])


# Control groups of version 2 and 1: the line in /proc/self/cgroup, the folder below
# /sys/fs/cgroup, and the files with the limit and with what is used.
_GROUPS = (
    ("0::", "", "memory.max", "memory.current", "inactive_file"),
    (":memory:", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _group_limits(top: Path) -> Iterator[int]:
    """Yield what is left to each control group that this process is in, and to their parents."""
    try:
        memberships = (top / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for (mark, folder, limit, used, reclaimable), line in product(_GROUPS, memberships):
        if mark not in line or (mark == "0::" and not line.startswith(mark)):
            continue
        mount = top / "sys/fs/cgroup" / folder
        group = mount / line.partition(mark)[2].lstrip("/")
        for place in (group, *group.parents):
            if not place.is_relative_to(mount):
                break
            try:
                left = int((place / limit).read_text()) - int((place / used).read_text())
                pages = dict(x.split() for x in (place / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such file here, or "max": no limit
                continue
            # File pages that nobody uses go when memory is asked for.
            yield max(0, left + int(pages.get(reclaimable, 0)))
