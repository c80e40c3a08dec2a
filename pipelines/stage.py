"""One stage of a job: the same step for many inputs, on the cluster, with one progress bar."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import CapacityError, ClusterError, PenstockError
from penstock.progress import Progress


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
    name = step.__name__.strip("_")
    futures = [
        client.submit(step, *call, **shared, pure=False, key=f"{name}-{title}-{i}-{id(calls)}")
        for i, call in enumerate(calls)
    ]
    place = {future.key: i for i, future in enumerate(futures)}
    results: list[Any] = [None] * len(futures)
    try:
        with Progress(title, total=sum(sizes), unit=unit, quiet=quiet) as progress:
            for future in as_completed(futures):
                i = place[future.key]
                results[i] = future.result()
                progress.advance(sizes[i])
    except BaseException as error:
        client.cancel(futures, force=True)
        raise _as_user_sees(error, title) from error
    return results


def _as_user_sees(error: BaseException, title: str) -> BaseException:
    from distributed import KilledWorker

    if isinstance(error, PenstockError | KeyboardInterrupt):
        return error
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"workers died again and again in the stage {title!r}",
            got="most likely more memory used than --memory-limit allows",
            remedy="Give workers more memory with --memory-limit, or start fewer with -n",
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
