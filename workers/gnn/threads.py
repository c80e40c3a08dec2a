"""How many threads a rank computes with: its share of the host's cores."""

from __future__ import annotations

import socket
from typing import Any

from penstock.limits import cores


def threads_of(comm: Any) -> int:
    """Return this rank's share of the cores it may use; every rank of a gang calls it."""
    if comm is None or comm.size == 1:
        return cores()
    hosts: list[str] = comm.allgather(socket.gethostname())
    return max(1, cores() // hosts.count(hosts[comm.rank]))
