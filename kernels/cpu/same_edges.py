"""Which edges of rows are the same as others, in Numba; meaning is naive/same_edges.py's.

The others are sorted as well, so the search for each goes on where the last one ended, in steps
that double, and then by halves. Kernels run on one thread and release the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


def same_edges(
    indptr: Array, columns: Sequence[Array], other_indptr: Array, other: Sequence[Array]
) -> tuple[Array, Array]:
    """Find the edges that are the same as each of ``other``, in all columns, in its row."""
    found: tuple[Array, Array] = _same_edges(indptr, tuple(columns), other_indptr, tuple(other))
    return found


@njit(cache=True)
def _order(columns: Any, at: int, other: Any, i: int) -> int:
    """Return -1, 0 or 1: whether an edge comes before another, is the same, or comes after."""
    targets, others = columns[0], other[0]
    if targets[at] != others[i]:
        return -1 if targets[at] < others[i] else 1
    if len(columns) > 1 and columns[1][at] != other[1][i]:
        return -1 if columns[1][at] < other[1][i] else 1
    if len(columns) > 2 and columns[2][at] != other[2][i]:
        return -1 if columns[2][at] < other[2][i] else 1
    return 0


@njit(cache=True, nogil=True)
def _same_edges(
    indptr: Array, columns: Any, other_indptr: Array, other: Any
) -> tuple[Array, Array]:
    first = np.empty(other_indptr[-1], np.int64)
    last = np.empty_like(first)
    for row in range(len(other_indptr) - 1):
        low, end = indptr[row], indptr[row + 1]
        for i in range(other_indptr[row], other_indptr[row + 1]):
            high, step = low, 1
            while high < end and _order(columns, high, other, i) < 0:
                low = high + 1
                high += step
                step *= 2
            high = min(high, end)
            while low < high:
                middle = (low + high) // 2
                if _order(columns, middle, other, i) < 0:
                    low = middle + 1
                else:
                    high = middle
            stop = low
            while stop < end and _order(columns, stop, other, i) == 0:
                stop += 1
            first[i], last[i] = low, stop
    return first, last
