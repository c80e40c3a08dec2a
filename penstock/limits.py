"""The memory and cores that this process may use, by the machine and by limits.

Containers and batch systems set limits that the machine's own figures do not show: those of control
groups, version 1 or 2, for a process' group or any group above it, and resource limits. Beyond them
the kernel kills without a message. ``distributed.system`` and ``dask.system`` look only at the top
of the hierarchy, or only at the process' own group, and so miss nested limits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

TOP = Path("/")
_USED = {"memory": "memory.current", "memory.v1": "memory.usage_in_bytes"}
# Unused file pages are freed when memory is requested.
_RECLAIMABLE = {"memory": "inactive_file", "memory.v1": "total_inactive_file"}
_LIMITS = {"memory": ("memory.max", "memory.high"), "memory.v1": ("memory.limit_in_bytes",)}


def total_memory() -> int:
    """Return how many bytes this process and all others of its groups may use together."""
    import psutil

    groups = (limit for kind, group in _groups("memory") for limit in _group_limits(kind, group))
    machine = int(psutil.virtual_memory().total)
    return min([machine, *groups, *_resident_limit()])


def workers_share(memory: int) -> int:
    """Return how much of a machine's ``memory`` all workers on it may use together."""
    return memory * 3 // 4


def available_memory() -> int:
    """Return how many bytes this process may still use."""
    import psutil

    left = [int(psutil.virtual_memory().available)]
    for kind, group in _groups("memory"):
        used = _number(group / _USED[kind])
        if used is not None:
            used -= _reclaimable(kind, group)
            left += [max(0, limit - used) for limit in _group_limits(kind, group)]
    mine = [max(0, limit - int(psutil.Process().memory_info().rss)) for limit in _resident_limit()]
    return min([*left, *mine])


def cores() -> int:
    """Return how many cores this process may use; a part of one counts as one."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min([count, *(math.ceil(share) for share in _shares())]))


def _shares() -> Iterator[float]:
    """Yield the groups' quotas of processor time, in cores."""
    for kind, group in _groups("cpu"):
        if kind == "cpu":
            words = (_text(group / "cpu.max") or "").split()
        else:
            words = [_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            yield int(words[0]) / int(words[1])  # "max" or -1 is no quota


def _group_limits(kind: str, group: Path) -> Iterator[int]:
    for name in _LIMITS[kind]:
        if (limit := _number(group / name)) is not None:
            yield limit


def _reclaimable(kind: str, group: Path) -> int:
    for line in (_text(group / "memory.stat") or "").splitlines():
        name, _, count = line.partition(" ")
        if name == _RECLAIMABLE[kind] and count.isdecimal():
            return int(count)
    return 0


def _groups(controller: str) -> Iterator[tuple[str, Path]]:
    """Yield the groups of this process, inner ones first: their kind, and their folder.

    In a container the own group may be at the top, although its path differs.
    """
    for line in (_text(TOP / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mounts = TOP / "sys/fs/cgroup"
        if number == "0" and not controllers:
            found = [(controller, mounts), (controller, mounts / "unified")]
        elif controller in controllers.split(","):
            found = [(f"{controller}.v1", mounts / controllers)]
            if controllers != controller:
                found.append((f"{controller}.v1", mounts / controller))
        else:
            continue
        for kind, mount in found:
            group = mount / path.lstrip("/")
            for folder in (group, *group.parents):
                if not folder.is_relative_to(mount):
                    break
                yield kind, folder


def _resident_limit() -> list[int]:
    try:
        import resource

        limit = int(resource.getrlimit(resource.RLIMIT_RSS)[1])
    except (ImportError, OSError, ValueError):
        return []
    return [limit] if limit > 0 else []


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None  # "max": no limit


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


# Memory of a worker with the libraries of any job loaded, measured, and the share of its limit
# beyond which Dask gives it no more tasks.
WORKER_ITSELF = 300_000_000
_PAUSED_AT = 0.8
SMALLEST_LIMIT = round(WORKER_ITSELF / _PAUSED_AT)


# The same for a process that is client, scheduler and worker, while it compiles kernels.
ALL_IN_ONE = 400_000_000


def usable_memory(limit: int) -> int:
    """Return the memory for tasks of a worker process with this ``limit``."""
    return max(limit // 16, int(limit * _PAUSED_AT) - WORKER_ITSELF)


def limit_for(needed: int) -> int:
    """Return the least limit of a worker that leaves ``needed`` bytes for its tasks."""
    limit = max(SMALLEST_LIMIT, min(16 * needed, math.ceil((needed + WORKER_ITSELF) / _PAUSED_AT)))
    return limit if usable_memory(limit) >= needed else limit + 1  # 0.8 is not exact


def usable_here() -> int:
    """Return the memory for tasks in this process, which has no limit of its own.

    Less than what is available: its first task loads most libraries.
    """
    import psutil

    available = available_memory()
    to_come = max(0, ALL_IN_ONE - int(psutil.Process().memory_info().rss))
    return max(available // 16, available - to_come)
