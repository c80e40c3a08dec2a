"""Threads that work with the one that asks them to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Self


class Threads:
    """So many threads with the caller's; BLAS uses one thread while they are entered."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._limit: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Self:
        from threadpoolctl import threadpool_limits

        # Products are cut into pieces by who asks for them: BLAS does not share tall ones well, and
        # would take all cores of a host that ranks share.
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
        """Call ``work`` in at most so many threads, in the caller's ``own``; raise what they do."""
        helpers = min(self.threads, most) - 1
        others = [self._pool.submit(work) for _ in range(helpers)] if self._pool else []
        try:
            (own or work)()
        finally:
            for other in others:
                other.result()
