"""Rows of a part with the ids and the order of the graph, in Numba; meaning as in naive."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_SHORT = 16  # rows up to this length are sorted by insertion


def global_rows(indptr: Array, indices: Array, global_ids: Array) -> tuple[Array, Array]:
    """Return neighbours as global ids, ascending in each row, and the order that sorts them.

    indptr (rows + 1,), indices (edges,) local ids, global_ids (local ids,) -> (edges,) like
    global_ids, (edges,) int64. Equal neighbours keep their order, and ``column[order]`` puts an
    edge column in step.
    """
    found, order = _global_rows(_frozen(indptr), _frozen(indices), _frozen(global_ids))
    return found, order


def _frozen(array: Array) -> Array:
    # Mapped arrays are read-only and Numba compiles for each kind: one kind is enough.
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def _global_rows(indptr: Array, indices: Array, global_ids: Array) -> tuple[Array, Array]:
    found = np.empty(len(indices), global_ids.dtype)
    order = np.empty(len(indices), np.int64)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        if stop - start > _SHORT:
            for edge in range(start, stop):
                found[edge] = global_ids[indices[edge]]
            places = np.argsort(found[start:stop], kind="mergesort")  # it is stable
            found[start:stop] = found[start:stop][places]
            order[start:stop] = start + places
            continue
        for edge in range(start, stop):
            value, at = global_ids[indices[edge]], edge
            while at > start and found[at - 1] > value:
                found[at], order[at] = found[at - 1], order[at - 1]
                at -= 1
            found[at], order[at] = value, edge
    return found, order
