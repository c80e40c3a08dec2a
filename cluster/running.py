"""What ``connect`` needs to know of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client, Security
    from distributed.deploy import Cluster

_TAIL = 1 << 16  # bytes


def log_tail(log: Path, *, lines: int = 20, begin: int = 0) -> str:
    """Return the last lines of a log that are not blank; empty if it cannot be read.

    begin  the byte before which nothing is read
    """
    try:
        with log.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


@dataclass
class Running:
    """A cluster that accepts clients."""

    target: Cluster | str  # for distributed.Client
    workers: int | None = None  # how many must connect; None: any
    dashboard: str | None = None
    security: Security | None = None
    attach: Callable[[Client], None] | None = None
    """Called with the client before workers are waited for."""
    log: Callable[[], str] = str  # last lines of its workers
    missing: Callable[[set[str]], list[str]] | None = None
    """Given the connected workers' names, return the missing ones: `rank 3 on host h2`."""
    failure: Callable[[], str | None] | None = None
    """Return why it cannot start, once known: `mpiexec ended with exit code 1`."""
    remedy: str = (
        "Check their output, the names of the hosts and firewalls, or raise the time with "
        "--start-timeout"
    )
