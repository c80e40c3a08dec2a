"""One context manager from a ClusterSpec to a ``distributed.Client``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, UsageError

START_TIMEOUT = 60
CLOSE_TIMEOUT = 5
# Starting processes costs about two seconds; below this much input it is not worth it.
SMALL_INPUT = 256 << 20


@dataclass(frozen=True)
class Capacity:
    """What a cluster can do at once."""

    tasks: int
    task_memory: int  # bytes that one task may use


def capacity(client: Any, spec: ClusterSpec) -> Capacity:
    """Return what the cluster behind ``client`` can do at once."""

    def workers(dask_scheduler: Any) -> list[tuple[int, int]]:
        return [(w.nthreads, w.memory_limit or 0) for w in dask_scheduler.workers.values()]

    found = client.run_on_scheduler(workers)
    tasks = sum(threads for threads, _ in found)
    if not tasks:
        raise ClusterError(
            "the cluster has no workers", remedy="Start workers, or leave --cluster away"
        )
    # Workers without a limit of their own share this machine.
    memory = min((limit // threads for threads, limit in found if limit), default=0)
    return Capacity(tasks, memory or spec.worker_memory())


@contextmanager
def connect(spec: ClusterSpec, *, input_bytes: int, quiet: bool = True) -> Iterator[Any]:
    """Give a client of the cluster that ``spec`` asks for, and close what was started for it."""
    kind = spec.cluster
    if kind == "auto":
        asked = spec.workers is not None or spec.memory_limit is not None
        kind = "local" if asked or input_bytes > SMALL_INPUT else "threads"
    if kind in ("local", "threads"):
        yield from _local(spec, processes=kind == "local", quiet=quiet)
    elif "://" in kind:
        yield from _address(kind)
    else:
        raise UsageError(
            f"there is no cluster {kind!r}",
            expected="auto, local, threads, or a scheduler's address such as tcp://10.0.0.1:8786",
        )


def _local(spec: ClusterSpec, *, processes: bool, quiet: bool) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    from penstock.workers.interrupts import LeaveInterruptsToClient

    cores = spec.worker_count()
    cluster = LocalCluster(
        processes=processes,
        n_workers=cores if processes else 1,
        threads_per_worker=1 if processes else cores,
        memory_limit=spec.worker_memory() if processes else None,
        dashboard_address="localhost:0",
        # In this process nobody would look at it, and it takes a second to load.
        scheduler_kwargs={"dashboard": processes},
        # A failed task is reported once, by the job, with its remedy.
        silence_logs=logging.CRITICAL,
    )
    try:
        with Client(cluster) as client:
            if processes:
                client.register_plugin(LeaveInterruptsToClient())
                if not quiet:
                    print(f"dashboard: {cluster.dashboard_link}", file=sys.stderr)
            yield client
    finally:
        _close(cluster)


def _close(cluster: Any) -> None:
    """End a cluster that this process started, in bounded time.

    After workers died over and over, closing can wait for one that will never answer.
    """
    from distributed import Nanny
    from distributed.core import Status

    nannies = [worker for worker in cluster.workers.values() if isinstance(worker, Nanny)]
    try:
        cluster.close(timeout=CLOSE_TIMEOUT)
    except TimeoutError:
        cluster.shutdown_on_close = False  # nor at the end of this process
        for nanny in nannies:
            nanny.status = Status.failed  # so that it does not start its worker again
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)


def _address(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=START_TIMEOUT)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}",
            expected=f"one within {START_TIMEOUT} s",
            got=str(error),
            remedy="Start one with dask scheduler, or check address and firewall",
        ) from error
    with client:
        yield client
