"""What the workers of a cluster have, asked before a job is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import ClusterError
from penstock.workers.plugin import resources


@dataclass(frozen=True)
class Room:
    """What the workers of a cluster have.

    rows    bytes that every worker can keep of a graph, in memory or on its GPU
    memory  bytes that every worker may use in all
    """

    rows: int
    memory: int
    on_gpu: bool
    workers: int

    @property
    def worker(self) -> str:
        """What a worker is called."""
        return "GPU" if self.on_gpu else "worker"

    def text(self) -> str:
        """Return it for a report."""
        return f"{self.workers} {self.worker}{'s' * (self.workers != 1)}"


def room_of(client: Any) -> Room:
    """Ask every worker what it has."""

    def look(dask_worker: Any) -> tuple[int, int, bool]:
        held = resources(dask_worker)
        return held.cache.limit_bytes, held.memory_bytes(), held.device is not None

    found = list(client.run(look).values())
    if not found:
        raise ClusterError("the cluster has no workers", remedy="Start workers, or leave --cluster")
    return Room(
        rows=min(limit for limit, _, _ in found),
        memory=min(memory for _, memory, _ in found),
        on_gpu=all(gpu for _, _, gpu in found),
        workers=len(found),
    )
