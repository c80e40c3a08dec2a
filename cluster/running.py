"""What ``connect`` must know of a cluster that was started or found."""

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


def log_tail(log: Path, *, lines: int = 20) -> str:
    """Return the last lines of a log that are not blank; nothing if there is none to be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def _nothing() -> str:
    return ""


@dataclass
class Running:
    """A cluster to which a client can connect."""

    target: Cluster | str  # what distributed.Client takes: a cluster, or an address
    workers: int | None = None  # how many must connect; None: whoever is there
    dashboard: str | None = None
    security: Security | None = None
    attach: Callable[[Client], None] | None = None
    """Called with the client before workers are waited for."""
    log: Callable[[], str] = _nothing  # the last lines that its workers wrote
    missing: Callable[[set[str]], list[str]] | None = None
    """Given the names of the workers that connected, say who did not: `rank 3 on host h2`."""
    failure: Callable[[], str | None] | None = None
    """Why it can no longer start, as soon as that is known: `mpiexec ended with exit code 1`."""
    remedy: str = (
        "Look at what they wrote, at the names of the hosts and at firewalls; --start-timeout "
        "gives them more time"
    )
