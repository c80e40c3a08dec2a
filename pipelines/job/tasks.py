"""One step of a job: the same function for many inputs, on the cluster, with one progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.query import ask_scheduler, scheduler_gone
from penstock.errors import CapacityError, ClusterError, PenstockError, SilentScheduler
from penstock.pipelines.job.compiling import CompilingNotice
from penstock.progress import Progress
from penstock.sizes import format_bytes
from penstock.system_errors import MORE_MEMORY, from_system
from penstock.workers.compiling import as_task

if TYPE_CHECKING:
    from distributed import Client, Future, Scheduler, as_completed

# A worker that died is back within a few seconds.
NO_WORKER_TIMEOUT = 60
# Dask resumes a worker as soon as its memory shrinks.
PAUSED_TIMEOUT = 30.0
_ASK_EVERY = 5
_POLL = 0.005


def run_tasks(
    client: Client,
    title: str,
    step: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    *,
    sizes: Sequence[int],
    unit: str,
    quiet: bool,
    **shared: Any,
) -> list[Any]:
    """Run ``step(*call, **shared)`` for every call; return the results in the order of calls.

    sizes  how much work each call is, in ``unit``, for the progress bar
    The first failure cancels the rest and is raised as the user should see it.
    """
    from distributed import as_completed

    from penstock.cluster.gang import listening

    if not calls:
        return []
    # A key is used once: Dask would take a second task of the same key for the first.
    name = f"{step.__name__.strip('_')}-{uuid4().hex}"
    work = step if quiet else partial(as_task, name, step)
    futures = [
        client.submit(work, *call, **shared, pure=False, key=f"{name}-{i}")
        for i, call in enumerate(calls)
    ]
    position = {future.key: i for i, future in enumerate(futures)}
    results: list[Any] = [None] * len(futures)
    hearing = nullcontext() if quiet else listening(client, name, CompilingNotice(title).hear)
    try:
        with hearing, Progress(title, total=sum(sizes), unit=unit, quiet=quiet) as progress:
            for future in _watched(as_completed(futures), client, title):
                i = position[future.key]
                results[i] = future.result()
                progress.advance(sizes[i])
    except BaseException as error:
        if not isinstance(error, SilentScheduler):  # it would not hear that
            client.cancel(futures, force=True)
        raise _as_user_sees(error, title) from error
    return results


def _watched(done: as_completed, client: Client, title: str) -> Iterator[Future]:
    """Yield futures as they are done; raise once nobody could work on them for a while.

    Dask itself would wait for ever: for workers that cannot even load a task and leave without a
    word, and for those that it has paused because of their memory.
    """
    alone_since = paused_since = None
    asked = time.monotonic()
    while not done.is_empty():
        if done.has_ready():
            yield from done.next_batch(block=False)
            paused_since = None
            continue
        time.sleep(_POLL)
        now = time.monotonic()
        if now - asked < _ASK_EVERY:
            continue
        asked = now
        workers = ask_scheduler(client, _states_of_workers)
        alone_since = None if workers else alone_since or now
        if alone_since is not None and now - alone_since > NO_WORKER_TIMEOUT:
            raise ClusterError(
                f"no worker is left in the step {title!r}",
                expected=f"one to come back within {NO_WORKER_TIMEOUT} s",
                remedy="Look into the workers' logs: they ended for want of memory, or have "
                "another penstock than this machine",
            )
        stuck = bool(workers) and all(each["paused"] and not each["tasks"] for each in workers)
        paused_since = (paused_since or now) if stuck else None
        if paused_since is not None and now - paused_since > PAUSED_TIMEOUT:
            raise _all_paused(workers, title)


def _states_of_workers(dask_scheduler: Scheduler) -> list[dict[str, Any]]:
    # Runs on the scheduler. A paused worker ends what it has begun, and begins nothing.
    return [
        {
            "name": str(worker.name),
            "paused": worker.status.name == "paused",
            "tasks": len(worker.executing),
            "memory": int(worker.metrics.get("memory", 0)),
            "limit": int(worker.memory_limit or 0),
        }
        for worker in dask_scheduler.workers.values()
    ]


def _all_paused(workers: list[dict[str, Any]], title: str) -> CapacityError:
    fullest = max(workers, key=lambda worker: worker["memory"] / max(worker["limit"], 1))
    count = "the only worker is" if len(workers) == 1 else f"all {len(workers)} workers are"
    return CapacityError(
        f"{count} paused for want of memory in the step {title!r}",
        expected="less than 80 % of --memory-limit in use, beyond which a worker begins no task",
        got=f"{format_bytes(fullest['memory'])} of {format_bytes(fullest['limit'])} on worker "
        f"{fullest['name']}, and nothing has moved for {PAUSED_TIMEOUT:.0f} s",
        remedy=MORE_MEMORY,
    )


def _as_user_sees(error: BaseException, title: str) -> BaseException:
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    if isinstance(error, PenstockError | KeyboardInterrupt):
        return error
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"workers died again and again in the step {title!r}",
            got="most likely more memory used than --memory-limit allows",
            remedy=MORE_MEMORY,
        )
    if isinstance(error, CancelledError):
        return scheduler_gone(f"in the step {title!r}")
    return from_system(error, f" in the step {title!r}") or error
