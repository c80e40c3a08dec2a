"""One stage of a job: the same step for many inputs, on the cluster, with one progress bar."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from penstock.cluster.answer import SilentScheduler, ask_scheduler
from penstock.errors import CapacityError, ClusterError, PenstockError
from penstock.progress import Progress

# A worker that died is back within a few seconds.
NO_WORKER_TIMEOUT = 60
_ASK_EVERY = 5
_POLL = 0.005


def run_stage(
    client: Any,
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

    if not calls:
        return []
    # A key is used once: Dask would take a second task of the same key for the first.
    stage = f"{step.__name__.strip('_')}-{uuid4().hex}"
    futures = [
        client.submit(step, *call, **shared, pure=False, key=f"{stage}-{i}")
        for i, call in enumerate(calls)
    ]
    place = {future.key: i for i, future in enumerate(futures)}
    results: list[Any] = [None] * len(futures)
    try:
        with Progress(title, total=sum(sizes), unit=unit, quiet=quiet) as progress:
            for future in _watched(as_completed(futures), client, title):
                i = place[future.key]
                results[i] = future.result()
                progress.advance(sizes[i])
    except BaseException as error:
        if not isinstance(error, SilentScheduler):  # it would not hear that
            client.cancel(futures, force=True)
        raise _as_user_sees(error, title) from error
    return results


def _watched(done: Any, client: Any, title: str) -> Iterator[Any]:
    """Yield futures as they are done; raise once no worker has been there for a while.

    Dask itself would wait for ever: workers that cannot even load a task leave without a word.
    """
    alone_since, asked = None, time.monotonic()
    while not done.is_empty():
        if done.has_ready():
            yield from done.next_batch(block=False)
            continue
        time.sleep(_POLL)
        now = time.monotonic()
        if now - asked < _ASK_EVERY:
            continue
        asked = now
        if ask_scheduler(client, _count_workers):
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > NO_WORKER_TIMEOUT:
            raise ClusterError(
                f"no worker is left in the stage {title!r}",
                expected=f"one to come back within {NO_WORKER_TIMEOUT} s",
                remedy="Look into the workers' logs: they ended for want of memory, or have "
                "another penstock than this machine",
            )


def _count_workers(dask_scheduler: Any) -> int:
    return len(dask_scheduler.workers)


def _as_user_sees(error: BaseException, title: str) -> BaseException:
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    if isinstance(error, PenstockError | KeyboardInterrupt):
        return error
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"workers died again and again in the stage {title!r}",
            got="most likely more memory used than --memory-limit allows",
            remedy="Give workers more memory with --memory-limit, or start fewer with -n",
        )
    if isinstance(error, CancelledError):
        return ClusterError(
            f"the scheduler ended, or cannot be reached any more, in the stage {title!r}",
            remedy="Start the cluster again; --resume goes on where the job has it",
        )
    if isinstance(error, MemoryError):
        return CapacityError(
            f"memory ran out in the stage {title!r}",
            remedy="Give workers more memory with --memory-limit, or start fewer with -n",
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CapacityError(
            f"the disk is full in the stage {title!r}: {error.filename or error.strerror}",
            remedy="Free some space or name another disk with --scratch",
        )
    return error
