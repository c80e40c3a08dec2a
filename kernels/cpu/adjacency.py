"""The neighbours of each node in Numba: two ascending lists merged; as in naive/adjacency.py."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.kernels.compiled import njit


def neighbour_counts(
    indptr: Array, indices: Array, first_row: int, in_indptr: Array, in_indices: Array
) -> Array:
    """Return how many distinct other nodes each row touches: (rows,) int64."""
    counts = np.empty(len(indptr) - 1, np.int64)
    lists = (
        frozen_view(indptr),
        frozen_view(indices),
        first_row,
        frozen_view(in_indptr),
        frozen_view(in_indices),
    )
    _merge(*lists, counts, np.empty(0, np.int64), False)
    return counts


def neighbour_lists(
    indptr: Array,
    indices: Array,
    first_row: int,
    in_indptr: Array,
    in_indices: Array,
    starts: Array,
    out: Array,
) -> None:
    """Write the distinct other nodes that row ``r`` touches, ascending, at ``out[starts[r]:]``."""
    lists = (
        frozen_view(indptr),
        frozen_view(indices),
        first_row,
        frozen_view(in_indptr),
        frozen_view(in_indices),
    )
    _merge(*lists, starts, out, True)


@njit(cache=True, nogil=True)
def _merge(
    indptr: Array,
    indices: Array,
    first_row: int,
    in_indptr: Array,
    in_indices: Array,
    at: Array,
    out: Array,
    write: bool,
) -> None:
    # One kernel counts (into ``at``) and writes (from ``at`` on), so that the two cannot differ.
    for row in range(len(indptr) - 1):
        node = first_row + row
        a, a_stop = indptr[row], indptr[row + 1]
        b, b_stop = np.int64(0), np.int64(0)
        if len(in_indptr):
            b, b_stop = in_indptr[node], in_indptr[node + 1]
        last = np.int64(-1)
        count = 0
        while a < a_stop or b < b_stop:
            if b == b_stop or (a < a_stop and indices[a] <= in_indices[b]):
                neighbour = np.int64(indices[a])
                a += 1
            else:
                neighbour = np.int64(in_indices[b])
                b += 1
            if neighbour != last and neighbour != node:
                if write:
                    out[at[row] + count] = neighbour
                count += 1
            last = neighbour
        if not write:
            at[row] = count
