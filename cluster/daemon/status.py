"""Workers of started clusters, as their schedulers report them in bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.daemon.registry import Registered
from penstock.cluster.query import request
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from distributed import Scheduler

ANSWER_TIMEOUT = 5.0


@dataclass(frozen=True)
class Status:
    """What is known of one cluster.

    state  running   its scheduler answers
           starting  its workers are still connecting
           silent    its scheduler does not answer; its daemon lives, or is on another host
           ended     its daemon has died
    """

    cluster: Registered
    state: str
    present: tuple[dict[str, Any], ...] = ()
    """its workers, as ``_workers`` describes them"""
    trouble: str = ""
    """why a scheduler is silent"""


def query(clusters: Sequence[Registered]) -> list[Status]:
    """Ask all clusters for their workers at once; return what is known after five seconds."""
    with ThreadPoolExecutor(max(1, len(clusters))) as threads:
        return list(threads.map(_ask, clusters))


def _ask(cluster: Registered) -> Status:
    if cluster.alive() is False:
        return Status(cluster, "ended")
    if cluster.address is None:
        return Status(cluster, "starting")
    try:
        return Status(cluster, "running", _ask_scheduler(cluster.address, cluster.tls))
    except (OSError, PenstockError) as error:
        late = isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)
        trouble = f"no answer within {ANSWER_TIMEOUT:g} s" if late else str(error)
        return Status(cluster, "silent", trouble=trouble)


def _ask_scheduler(address: str, tls: str | None) -> tuple[dict[str, Any], ...]:
    from distributed.protocol.pickle import dumps

    from penstock.cluster.security import of_folder

    message = {"op": "run_function", "function": dumps(_workers), "wait": True}
    used = of_folder(Path(tls)) if tls else None
    answer = request(address, used, message, timeout=ANSWER_TIMEOUT)
    if answer["status"] != "OK":
        raise OSError(str(answer.get("text", "")).strip() or "the scheduler gave no reason")
    found = answer["result"]
    return tuple(sorted(found, key=lambda one: (one["host"], len(one["name"]), one["name"])))


def _workers(dask_scheduler: Scheduler) -> list[dict[str, Any]]:
    """Describe workers: memory and limit in bytes, 0: none; tasks are held or waited for."""
    return [
        {
            "name": str(worker.name),
            "host": worker.host,
            "pid": worker.pid,
            "threads": worker.nthreads,
            "memory": int(worker.metrics.get("memory", 0)),
            "memory_limit": int(worker.memory_limit or 0),
            "tasks": len(worker.processing),
        }
        for worker in dask_scheduler.workers.values()
    ]
