"""Threads that work with the calling one, and their number."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, Self, TypeVar

import numpy as np

from penstock.arrays import Array
from penstock.limits import cores

T = TypeVar("T")
R = TypeVar("R")

_PIECE = 1 << 23  # bytes that a thread copies at a time


class Threads:
    """A number of threads, the caller's included; BLAS uses one thread while they are entered."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._limit: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Self:
        from threadpoolctl import threadpool_limits

        # The caller cuts products into pieces: BLAS does not share tall ones well, and would take
        # all cores of a host that ranks share.
        self._limit = threadpool_limits(1, user_api="blas")
        self._limit.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._limit is not None:
            self._limit.__exit__(*error)
        if self._pool is not None:
            self._pool.shutdown()

    def together(
        self, most: int, work: Callable[[], Any], own: Callable[[], Any] | None = None
    ) -> None:
        """Call ``work`` in at most that many threads, in the caller's ``own``; raise their
        errors."""
        helpers = min(self.threads, most) - 1
        others = [self._pool.submit(work) for _ in range(helpers)] if self._pool else []
        try:
            (own or work)()
        finally:
            for other in others:
                other.result()


def spread(work: Callable[[T], Any], pieces: Iterable[T], threads: int | None = None) -> None:
    """Call ``work(piece)`` for every piece; free threads take the next piece."""
    deque(results(work, pieces, threads), maxlen=0)


def results(work: Callable[[T], R], pieces: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """Yield ``work(piece)`` of every piece in order; free threads take the next piece.

    Threads, not ``prange``: one of Numba's threading layers aborts the process if two threads
    launch parallel kernels at once, and jobs run inside Dask's threads.
    """
    threads = threads or cores()
    if threads == 1 or (isinstance(pieces, Sized) and len(pieces) < 2):
        yield from map(work, pieces)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for piece in pieces:
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, piece))
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def joined(arrays: Sequence[Array]) -> Array:
    """Return arrays one after another along their first axis; threads copy them."""
    rows = [len(array) for array in arrays]
    found: Array = np.empty((sum(rows), *arrays[0].shape[1:]), np.result_type(*arrays))
    step = max(1, _PIECE * len(found) // max(1, found.nbytes))

    def pieces() -> Iterator[tuple[Array, Array]]:
        for array, end in zip(arrays, accumulate(rows), strict=True):
            into = found[end - len(array) : end]
            for low in range(0, len(array), step):
                yield into[low : low + step], array[low : low + step]

    spread(lambda piece: np.copyto(*piece), pieces(), None if found.nbytes > _PIECE else 1)
    return found


def cores_of_rank(comm: Any) -> int:
    """Return a rank's share of the cores of its host; every rank of the communicator calls it."""
    if comm.size == 1:
        return cores()
    hosts: list[str] = comm.allgather(socket.gethostname())
    return max(1, cores() // hosts.count(hosts[comm.rank]))
