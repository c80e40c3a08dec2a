"""The rows of a part, renumbered: its own nodes first, then ghosts of other parts."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def gather_rows(indptr: Array, rows: Array, column: Array) -> Array:
    """Return ``column`` of the given rows, one after another: (their edges,)."""
    pieces = [column[indptr[row] : indptr[row + 1]] for row in rows]
    return np.concatenate([*pieces, column[:0]])


def mark_foreign(indices: Array, parts: Array, rank: int, mark: Array) -> None:
    """Set ``mark[v]`` for every neighbour ``v`` that a part other than ``rank`` owns."""
    for neighbour in indices:
        if parts[neighbour] != rank:
            mark[neighbour] = True


def local_rows(
    indptr: Array, indices: Array, local: Array, bounds: Array, ordered: bool
) -> tuple[Array, Array]:
    """Return neighbours as local ids, ascending in each row, and the order that sorts them.

    indices  global ids, ascending in each row
    local    (nodes,): the local id of a node
    bounds   ascending local ids: between two of them, and before the first and from the last on,
             local ids are in the order of global ids
    ordered  whether the order is wanted; else it is empty

    Equal neighbours keep their order, and ``column[order]`` reorders an edge column.
    """
    del bounds  # only faster implementations need them
    found, order = global_rows(indptr, indices, local)
    return found, order if ordered else order[:0]


def global_rows(indptr: Array, indices: Array, global_ids: Array) -> tuple[Array, Array]:
    """Return neighbours as global ids, ascending in each row, and the order that sorts them.

    indptr (rows + 1,), indices (edges,) local ids, global_ids (local ids,) -> (edges,) like
    global_ids, (edges,) int64. Equal neighbours keep their order, and ``column[order]`` puts an
    edge column in step.
    """
    found = global_ids[indices]
    order = np.arange(len(indices), dtype=np.int64)
    for row in range(len(indptr) - 1):
        low, high = indptr[row], indptr[row + 1]
        order[low:high] = low + np.argsort(found[low:high], kind="stable")
    return found[order], order
