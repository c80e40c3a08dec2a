"""Who is present in started clusters, asked of their schedulers in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cluster.daemon.registry import Registered
from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError

ANSWER_TIMEOUT = 5.0


@dataclass(frozen=True)
class Worker:
    """One worker, as the scheduler sees it."""

    name: str
    host: str
    pid: int
    threads: int
    memory: int
    """bytes that its process uses"""
    memory_limit: int
    """bytes that it may use; 0: no limit"""
    tasks: int
    """that it has or waits for"""


@dataclass(frozen=True)
class Status:
    """What could be learned of one cluster.

    state  running   its scheduler answers
           starting  its workers are still connecting
           silent    its daemon lives, or is out of sight, and the scheduler does not answer
           ended     its daemon has died
    """

    cluster: Registered
    state: str
    present: tuple[Worker, ...] = ()
    trouble: str = ""
    """why a scheduler is silent"""


def query(clusters: Sequence[Registered]) -> list[Status]:
    """Ask all clusters at once who is there; return what is known after five seconds."""

    async def ask_all() -> list[Status]:
        return list(await asyncio.gather(*map(_ask, clusters)))

    return asyncio.run(ask_all())


async def _ask(cluster: Registered) -> Status:
    if cluster.alive() is False:
        return Status(cluster, "ended")
    if cluster.address is None:
        return Status(cluster, "starting")
    try:
        workers = await asyncio.wait_for(_workers(cluster), ANSWER_TIMEOUT)
    except TimeoutError:
        return Status(cluster, "silent", trouble=f"no answer within {ANSWER_TIMEOUT:g} s")
    except (OSError, PenstockError) as error:
        return Status(cluster, "silent", trouble=str(error))
    return Status(cluster, "running", tuple(workers))


async def _workers(cluster: Registered) -> list[Worker]:
    from distributed.core import rpc
    from distributed.protocol.pickle import dumps

    from penstock.cluster.security import security

    used = security(ClusterSpec(tls=Path(cluster.tls))) if cluster.tls else None
    more = {"connection_args": used.get_connection_args("client")} if used else {}
    scheduler = rpc(cluster.address, **more)
    try:
        answer = await scheduler.run_function(function=dumps(_list_workers), wait=True)
    finally:
        scheduler.close_comms()
        scheduler.status = type(scheduler.status).closed
    if answer["status"] != "OK":
        raise OSError(str(answer.get("text", "")).strip() or "the scheduler cannot say")
    found = [Worker(**values) for values in answer["result"]]
    return sorted(found, key=lambda worker: (worker.host, len(worker.name), worker.name))


def _list_workers(dask_scheduler: Any) -> list[dict[str, Any]]:
    # Runs in the scheduler's process.
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
