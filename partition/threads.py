"""The same function over many pieces, on all cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.limits import cores

T = TypeVar("T")


def spread(work: Callable[[T], Any], pieces: Iterable[T], threads: int | None = None) -> None:
    """Call ``work(piece)`` for every piece; pieces are taken as threads become free.

    Threads, not ``prange``: one of Numba's threading layers aborts the process when two threads
    launch parallel kernels at once, and jobs run inside Dask's threads.
    """
    threads = threads or cores()
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for piece in pieces:
                if len(waiting) >= 2 * threads:
                    waiting.popleft().result()
                waiting.append(pool.submit(work, piece))
            while waiting:
                waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
