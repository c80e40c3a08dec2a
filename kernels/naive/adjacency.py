"""The neighbours of each node, direction, loops and repeats ignored: what METIS cuts.

For a directed graph the reverse of every edge is needed: (in_indptr, in_indices) lists the
sources of each node's incoming edges, ascending. An undirected graph stores both directions already
and passes empty lists.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def neighbour_counts(
    indptr: Array, indices: Array, first_row: int, in_indptr: Array, in_indices: Array
) -> Array:
    """Return how many distinct other nodes each row touches: (rows,) int64."""
    rows = range(len(indptr) - 1)
    lists = (_neighbours(row, indptr, indices, first_row, in_indptr, in_indices) for row in rows)
    return np.array([len(found) for found in lists], dtype=np.int64)


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
    for row in range(len(indptr) - 1):
        found = _neighbours(row, indptr, indices, first_row, in_indptr, in_indices)
        out[starts[row] : starts[row] + len(found)] = found


def _neighbours(
    row: int, indptr: Array, indices: Array, first_row: int, in_indptr: Array, in_indices: Array
) -> list[int]:
    found = set(indices[indptr[row] : indptr[row + 1]].tolist())
    if len(in_indptr):
        node = first_row + row
        found |= set(in_indices[in_indptr[node] : in_indptr[node + 1]].tolist())
    return sorted(found - {first_row + row})
