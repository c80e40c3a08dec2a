"""The resources of a cluster's workers, queried before a job is planned.

``Capacity`` is what workers report, GPUs included; ``TaskCapacity`` what the scheduler
knows, so that planning a job of tasks on the host opens no GPU. Disks are queried by
``sizes.need_disk`` and ``plan.disk_need``; one error covers all: ``does_not_fit``.
"""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cluster.query import ask_scheduler, ask_workers
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError
from penstock.limits import limit_for, usable_memory
from penstock.pipelines.job.plan import Need
from penstock.sizes import plural

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker


@dataclass(frozen=True)
class Capacity:
    """The resources of a cluster's workers, within limits of control groups.

    workers  their number
    memory   bytes that every worker may use in all: of its GPU, or of the host
    rows     bytes of these in which a worker can keep a graph between tasks
    gpus     number of their GPUs; workers of one host may share some; 0: one each
    largest_limit  largest possible --memory-limit, shared by the workers of a host; 0: no such
                   limit, as memory is a GPU's, or workers are threads
    cores    of a worker, as its share of those of its host; 0: unknown
    """

    rows: int
    memory: int
    on_gpu: bool
    workers: int
    gpus: int = 0
    largest_limit: int = 0
    cores: int = 0

    @property
    def worker(self) -> str:
        """The word for a worker in messages."""
        return "GPU" if self.on_gpu else "worker"

    @property
    def device(self) -> str:
        """The device of the workers."""
        return "gpu" if self.on_gpu else "cpu"

    def text(self) -> str:
        """Return it for a report."""
        if self.on_gpu and 0 < self.gpus < self.workers:
            return f"{plural(self.gpus, 'GPU')}, shared by {self.workers} workers"
        return plural(self.workers, self.worker)

    def limit_for(self, needs: int) -> str | None:
        """Return the least --memory-limit that gives a worker ``needs`` bytes, or None."""
        limit = -(-limit_for(needs) // 10**6)
        return f"--memory-limit {limit}MB" if limit * 10**6 <= self.largest_limit else None

    def need(self, size: int, remedy: str, *, there: int | None = None) -> Need:
        """Return the need of ``size`` bytes on every worker; its error names a limit that would do.

        there  bytes that may be used [default: all of a worker's]
        """
        limit = self.limit_for(size)
        remedy = remedy if limit is None else f"{remedy}; {limit} would fit"
        there = self.memory if there is None else there
        return Need(size, there, f"on every {self.worker}", remedy=remedy)


@dataclass(frozen=True)
class TaskCapacity:
    """How many tasks a cluster runs at once, and the bytes of host memory that each may use.

    workers  their number
    """

    tasks: int
    task_memory: int
    workers: int = 1

    @property
    def worker_memory(self) -> int:
        """The bytes of host memory that all tasks of a worker may use together."""
        return self.task_memory * max(1, self.tasks // self.workers)

    @staticmethod
    def of(workers: list[tuple[int, int]], spec: ClusterSpec) -> TaskCapacity:
        """Return it for workers, each a pair of threads and a limit in bytes, 0 for none."""
        if not workers:
            raise _no_workers()
        # Dask gives threads no limit; without an option they share this machine.
        asked = spec.worker_memory() if spec.memory_limit is not None else 0
        limits = [(threads, limit or asked) for threads, limit in workers]
        limited = [usable_memory(limit) // threads for threads, limit in limits if limit]
        memory = min(limited) if limited else spec.worker_memory()
        return TaskCapacity(sum(threads for threads, _ in workers), memory, len(workers))


def task_capacity(client: Client, spec: ClusterSpec) -> TaskCapacity:
    """Query the scheduler for the limits of tasks; neither workers nor devices are queried."""

    def workers(dask_scheduler: Scheduler) -> list[tuple[int, int]]:
        found = [w for w in dask_scheduler.workers.values() if "driver" not in w.resources]
        return [(w.nthreads, w.memory_limit or 0) for w in found]

    return TaskCapacity.of(ask_scheduler(client, workers), spec)


def capacity_of(client: Client) -> Capacity:
    """Query the resources of every worker."""

    def held_by(dask_worker: Worker) -> tuple[int, int, str, int, int, str]:
        from penstock.limits import cores
        from penstock.workers.plugin import resources
        from penstock.workers.resources.device import gpu_identity

        held = resources(dask_worker)
        gpu = "" if held.device is None else gpu_identity(held.device)
        host = socket.gethostname()
        limit, memory = held.cache.limit_bytes, held.memory_bytes()
        return limit, memory, gpu, held.largest_limit(), cores(), host

    found = list(ask_workers(client, held_by).values())
    if not found:
        raise _no_workers()
    gpus = [gpu for _, _, gpu, *_ in found]
    of_host = Counter(host for *_, host in found)
    return Capacity(
        rows=min(limit for limit, *_ in found),
        memory=min(memory for _, memory, *_ in found),
        on_gpu=all(gpus),
        workers=len(found),
        gpus=len({gpu for gpu in gpus if gpu}),
        largest_limit=min(largest // of_host[host] for *_, largest, _, host in found),
        cores=max(max(1, cores // of_host[host]) for *_, cores, host in found),
    )


def _no_workers() -> ClusterError:
    return ClusterError("the cluster has no workers", remedy="Start workers, or leave --cluster")
