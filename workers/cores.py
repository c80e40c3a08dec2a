"""How many threads a rank computes on: its share of the cores of its host."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from penstock.limits import cores

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


def cores_of_rank(comm: AnyCommunicator) -> int:
    """Return this rank's share of its host's cores; every rank calls it."""
    if comm.size == 1:
        return cores()
    hosts = comm.allgather(socket.gethostname())
    return max(1, cores() // hosts.count(hosts[comm.rank]))
