"""One step of a job: the same function for many inputs, on the cluster, with one progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.query import ask_scheduler, nothing, of_pieces, scheduler_gone
from penstock.errors import ClusterError, PenstockError, SilentScheduler
from penstock.progress import Progress
from penstock.system_errors import MORE_MEMORY, from_system

if TYPE_CHECKING:
    from distributed import Client, Future

_ASK_EVERY = 5
_POLL = 0.005


def run_tasks(
    client: Client | Executor,
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

    client  of a cluster, or threads of this process
    sizes   amount of work per call, in ``unit``, for the progress bar
    The first failure cancels the rest and is raised as the user should see it.
    """
    if not calls:
        return []
    # Keys are unique: Dask would treat a second task of the same key as the first.
    name = f"{step.__name__.strip('_')}-{uuid4().hex}"
    if isinstance(client, Executor):
        futures = [client.submit(step, *call, **shared) for call in calls]
        completed, key = as_completed, id
    else:
        wanted = of_pieces(client)
        futures = [
            client.submit(step, *call, **shared, pure=False, key=f"{name}-{i}", resources=wanted)
            for i, call in enumerate(calls)
        ]
        completed, key = partial(_as_completed, client=client), attrgetter("key")
    position = {key(future): i for i, future in enumerate(futures)}
    results: list[Any] = [None] * len(futures)
    try:
        with Progress(title, total=sum(sizes), unit=unit, quiet=quiet) as progress:
            for future in completed(futures):
                i = position[key(future)]
                results[i] = future.result()
                progress.advance(sizes[i])
    except BaseException as error:
        if isinstance(client, Executor):
            for future in futures:
                future.cancel()
        elif not isinstance(error, SilentScheduler):  # it would not receive that
            client.cancel(futures, force=True)
        raise _as_user_sees(error, title) from error
    return results


def _as_completed(futures: list[Future], client: Client) -> Iterator[Future]:
    """Yield futures as they are done; raise if the scheduler does not answer.

    Dask fails tasks that no worker can run (``no-workers-timeout``), but waits for a scheduler.
    """
    from distributed import as_completed as completed

    done, asked = completed(futures), time.monotonic()
    while not done.is_empty():
        if done.has_ready():
            yield from done.next_batch(block=False)
            continue
        time.sleep(_POLL)
        if time.monotonic() - asked > _ASK_EVERY:
            ask_scheduler(client, nothing)
            asked = time.monotonic()


def _as_user_sees(error: BaseException, title: str) -> BaseException:
    if isinstance(error, PenstockError | KeyboardInterrupt):
        return error
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    if isinstance(error, NoWorkerError | NoValidWorkerError):
        return ClusterError(
            f"no worker remains to run the step {title!r}",
            got=str(error),
            remedy="Check the workers' logs: they exited, are paused for lack of memory, or have "
            "another penstock than this machine",
        )
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"workers died repeatedly in the step {title!r}",
            got="most likely more memory used than --memory-limit allows",
            remedy=MORE_MEMORY,
        )
    if isinstance(error, CancelledError):
        return scheduler_gone(f"in the step {title!r}")
    return from_system(error, f" in the step {title!r}") or error
