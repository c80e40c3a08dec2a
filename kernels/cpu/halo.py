"""Rows renumbered for their part, in Numba; meaning as in naive/halo.py.

Every function releases the GIL and runs on one thread: parts are built side by side.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.sort import stable_order

_SHORT = 16  # rows up to this length are sorted by insertion


def gather_rows(indptr: Array, rows: Array, column: Array) -> Array:
    """Return ``column`` of the given rows, one after another: (their edges,)."""
    # Only the width of an item matters: four types share two compiled kernels.
    bits = np.dtype(f"i{column.dtype.itemsize}")
    gathered: Array = _gather_rows(
        frozen_view(indptr), frozen_view(rows), frozen_view(column.view(bits))
    )
    return gathered.view(column.dtype)


@njit(cache=True, nogil=True)
def _gather_rows(indptr: Array, rows: Array, column: Array) -> Array:
    total = 0
    for row in rows:
        total += indptr[row + 1] - indptr[row]
    gathered = np.empty(total, column.dtype)
    at = 0
    for row in rows:
        for edge in range(indptr[row], indptr[row + 1]):
            gathered[at] = column[edge]
            at += 1
    return gathered


@entry("mark")
def mark_foreign(indices: Array, parts: Array, rank: int, mark: Array) -> None:
    """Set ``mark[v]`` for every neighbour ``v`` that a part other than ``rank`` owns."""
    for edge in range(len(indices)):
        if parts[indices[edge]] != rank:
            mark[indices[edge]] = True


@entry()
def local_rows(
    indptr: Array, indices: Array, local: Array, bounds: Array, ordered: bool
) -> tuple[Array, Array]:
    """Return neighbours as local ids, ascending in each row, and the order that sorts them."""
    found = np.empty(len(indices), local.dtype)
    order = np.empty(len(indices) if ordered else 0, np.int64)
    k = len(bounds)
    short, longest = max(_SHORT, k // 8), 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    values, ranges = np.empty(longest, local.dtype), np.empty(longest, np.int32)
    starts = np.empty(len(bounds) + 1, np.int64)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        if stop - start <= short:
            for edge in range(start, stop):
                value, at = local[indices[edge]], edge
                while at > start and found[at - 1] > value:
                    found[at] = found[at - 1]
                    if ordered:
                        order[at] = order[at - 1]
                    at -= 1
                found[at] = value
                if ordered:
                    order[at] = edge
            continue
        # A long row is divided by ranges: one range's nodes already ascend.
        starts[:] = 0
        for edge in range(start, stop):
            value = local[indices[edge]]
            each = 0
            for b in range(k):  # below 1,400 faster than a search, whose branches are mispredicted
                each += value >= bounds[b]
            values[edge - start] = value
            ranges[edge - start] = each
            starts[each] += 1
        at = start
        for each in range(len(starts)):
            at, starts[each] = at + starts[each], at
        for edge in range(start, stop):
            each = ranges[edge - start]
            found[starts[each]] = values[edge - start]
            if ordered:
                order[starts[each]] = edge
            starts[each] += 1
    return found, order


@entry()
def global_rows(indptr: Array, indices: Array, global_ids: Array) -> tuple[Array, Array]:
    """Return neighbours as global ids, ascending in each row, and the order that sorts them."""
    found = np.empty(len(indices), global_ids.dtype)
    order = np.empty(len(indices), np.int64)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        if stop - start > _SHORT:
            for edge in range(start, stop):
                found[edge] = global_ids[indices[edge]]
            places = stable_order(found[start:stop])
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
