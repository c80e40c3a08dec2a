"""Which edges of rows are the same as others: the reference, by binary search for all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array


def same_edges(
    indptr: Array, columns: Sequence[Array], other_indptr: Array, other: Sequence[Array]
) -> tuple[Array, Array]:
    """Find the edges that are the same as each of ``other``, in all columns, in its row.

    indptr, other_indptr  (rows + 1,) of rows that are sorted by their columns, of the same nodes
    columns, other        targets, and relations or times that count: one of (edges,) each
    ->                    where they begin and end, and so where the edge belongs: (other edges,)
    """
    rows = np.repeat(np.arange(len(other_indptr) - 1), np.diff(other_indptr))
    low, high = indptr[rows], indptr[rows + 1]
    first = _bound(low, high, columns, other, after=False)
    return first, _bound(first, high, columns, other, after=True)


def _bound(
    low: Array, high: Array, columns: Sequence[Array], other: Sequence[Array], *, after: bool
) -> Array:
    """Return the place of each edge of ``other``: after edges that are the same, or before."""
    low, high = low.copy(), high.copy()
    left = np.flatnonzero(low < high)
    while len(left):
        middle = (low[left] + high[left]) // 2
        lower = np.full(len(left), after)
        for ours, theirs in zip(reversed(columns), reversed(other), strict=True):
            mine, wanted = ours[middle], theirs[left]
            lower = (mine < wanted) | ((mine == wanted) & lower)
        low[left] = np.where(lower, middle + 1, low[left])
        high[left] = np.where(lower, high[left], middle)
        left = left[low[left] < high[left]]
    return low
