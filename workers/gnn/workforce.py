"""Kernels over pieces of rows, on all threads of a rank, and messages helped on between pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import count, pairwise
from typing import Any

import numpy as np

from penstock.csr import Array

# Pieces do not depend on how many threads there are: sums are joined piece by piece.
_PIECES = 64
_LEAST = 1 << 16  # values of a piece, so that small graphs are done in one


class Workforce:
    """The threads of one rank; ``progress`` is called between pieces, in the rank's own thread."""

    def __init__(self, threads: int = 1, progress: Callable[[], None] | None = None) -> None:
        self.threads, self.progress = threads, progress
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._limit: AbstractContextManager[Any] | None = None

    def __enter__(self) -> Workforce:
        from threadpoolctl import threadpool_limits

        # Ranks that share a host share its cores, of which BLAS would take all.
        self._limit = threadpool_limits(self.threads, user_api="blas")
        self._limit.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._limit is not None:
            self._limit.__exit__(*error)
        if self._pool is not None:
            self._pool.shutdown()

    def over(self, cuts: Sequence[int], work: Callable[[int, int], Any]) -> None:
        """Call ``work(first, last)`` for each two neighbours of ``cuts``, on all threads."""
        pieces = len(cuts) - 1
        if pieces == 1:
            work(cuts[0], cuts[1])
            if self.progress is not None:
                self.progress()
            return
        numbers = count()

        def take(progress: Callable[[], None] | None = None) -> None:
            while (number := next(numbers)) < pieces:
                work(cuts[number], cuts[number + 1])
                if progress is not None:
                    progress()

        others = [self._pool.submit(take) for _ in range(self.threads - 1)] if self._pool else []
        try:
            take(self.progress)
        finally:
            for other in others:
                other.result()

    def sums(self, cuts: Sequence[int], sums: Any, work: Callable[[int, int, Any], Any]) -> None:
        """Call ``work(first, last, part)`` for each piece; add the parts to ``sums`` in order."""
        if len(cuts) == 2:
            self.over(cuts, lambda first, last: work(first, last, sums))
            return
        parts = np.zeros_like(sums, shape=(len(cuts) - 1, *sums.shape))
        number = {first: i for i, first in enumerate(cuts[:-1])}
        self.over(cuts, lambda first, last: work(first, last, parts[number[first]]))
        sums += parts.sum(axis=0)

    def product(self, a: Any, b: Any, out: Any) -> None:
        """Write ``a @ b`` at ``out``: rows in pieces where messages wait to be helped on."""
        if self.progress is None or isinstance(a, np.ndarray) is False or len(a) == 0:
            np.matmul(a, b, out=out)
            return
        for first, last in _pairs(even_cuts(0, len(a), a.shape[1] + b.shape[1])):
            np.matmul(a[first:last], b, out=out[first:last])
            self.progress()


def even_cuts(first: int, last: int, width: int, *, whole: bool = False) -> list[int]:
    """Return where to cut rows of ``width`` values into pieces of the same size."""
    pieces = 1 if whole else min(_PIECES, max(1, (last - first) * width // _LEAST))
    return [first + (last - first) * i // pieces for i in range(pieces + 1)]


def edge_cuts(
    indptr: Array, first: int, last: int, width: int, *, whole: bool = False
) -> list[int]:
    """Return where to cut rows into pieces of about as many edges, each at least a row."""
    low, high = int(indptr[first]), int(indptr[last])
    work = (high - low + last - first) * width
    pieces = 1 if whole else min(_PIECES, max(1, work // _LEAST), max(1, last - first))
    if pieces == 1:
        return [first, last]
    # Rows cost too, so that a long tail of rows without edges is not one piece.
    targets = np.linspace(low + first, high + last, pieces + 1)[1:-1]
    cost = indptr[first : last + 1] + np.arange(first, last + 1)
    inner = first + np.searchsorted(cost, targets)
    cuts = np.unique(np.concatenate([[first], inner, [last]]))
    return [int(cut) for cut in cuts]


def _pairs(cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    return pairwise(cuts)
