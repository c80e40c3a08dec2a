"""Strongly connected components on all cores; meaning as in naive/strong_components.py.

Nodes without edges to and from others that are left are components, and so is all that a node of
high degree reaches and is reached from (Slota, Rajamanickam and Madduri, 2014): in most large
graphs these are nearly all nodes. Both take some passes over the rows: forwards nodes mark their
neighbours, backwards they look for a marked one. Tarjan's search, on one thread, has the rest, and
all of a graph with long paths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import int64

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.structure import tarjan
from penstock.kernels.cpu.components import component_labels
from penstock.kernels.cpu.vector import pointer
from penstock.kernels.row_blocks import RowBlock, row_blocks
from penstock.threads import spread

_PASSES = 64  # over all rows, in one direction
_TRIMS, _WORTH = 4, 100  # passes, while each removes more than 1 / _WORTH of the nodes


def strong_components(rows: Sequence[CSR], *, threads: int | None = None) -> Array:
    """Return the component of each node: 0, 1, ... in the order of their smallest members."""
    nodes = sum(each.rows for each in rows)
    if threads == 1 and nodes:  # passes would read more
        whole = CSR.concatenate(rows) if len(rows) > 1 else rows[0]
        least = tarjan(whole.indptr, whole.indices)[0].astype(id_dtype(nodes))
        return component_labels(least)
    blocks, left = row_blocks(rows), np.ones(nodes, np.uint8)
    least = np.arange(nodes, dtype=id_dtype(nodes))  # of the component of a node that is not left

    def each(work: Callable[..., int], *arrays: Array) -> int:
        """Return the sum of what a pass over the rows returns."""
        found = np.zeros(len(blocks), np.int64)

        def run(number: int) -> None:
            block: RowBlock = blocks[number]
            indptr, indices, _, low, high, first = block.arrays()
            found[number] = work(indptr, indices, low, high, first, *arrays)

        spread(run, range(len(blocks)), threads)
        return int(found.sum())

    def trim() -> None:
        for _ in range(_TRIMS):
            into, out = np.zeros((2, nodes), np.uint8)
            each(_mark_ends, left, into, out)
            alone = left > into & out
            left[alone] = 0
            if np.count_nonzero(alone) * _WORTH <= nodes:
                return

    trim()
    degrees = np.concatenate([np.diff(one.indptr) for one in rows] or [np.empty(0, np.int64)])
    if left.any():
        pivot = int((degrees * left).argmax())
        forward, back = np.zeros((2, nodes), np.uint8)
        forward[pivot] = back[pivot] = 1
        passes = range(1, _PASSES)
        if any(each(_push, left, forward, np.array([level])) == 0 for level in passes) and any(
            each(_pull, forward, back) == 0 for _ in passes
        ):
            (found,) = np.nonzero(back)
            least[found], left[found] = found[0], 0
            trim()
    if left.any():
        _search_rest(blocks, each, left, least)
    return component_labels(least)


def _search_rest(
    blocks: Sequence[RowBlock], each: Callable[..., int], left: Array, least: Array
) -> None:
    """Find the components of the nodes that are left."""
    (chosen,) = np.nonzero(left)
    counts = np.zeros(len(left), np.int64)
    each(_count_left, left, counts)
    indptr = offsets_of(counts[chosen])
    numbers = np.cumsum(left, dtype=np.int64) - 1
    indices = np.empty(int(indptr[-1]), least.dtype)
    each(_fill_left, left, numbers, indptr, indices)
    least[chosen] = chosen[tarjan(indptr, indices)[0]]


@njit(cache=True, nogil=True)
def _mark_ends(
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    left: Array,
    into: Array,
    out: Array,
) -> int:
    """Mark the nodes with edges to and from others that are left."""
    ends, there, reached = pointer(indices), pointer(left), pointer(into)
    for row in range(low, high):
        node = first_row + row
        if left[node] == 0:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            other = int64(ends[edge])
            if there[other] != 0 and other != node:
                reached[other] = 1  # as do other threads
                out[node] = 1
    return 0


@njit(cache=True, nogil=True)
def _push(
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    left: Array,
    levels: Array,
    level: Array,
) -> int:
    """Mark the unmarked neighbours of nodes of a level; return about how many, 0 if none."""
    ends, there, marks = pointer(indices), pointer(left), pointer(levels)
    this, found = level[0], 0
    for row in range(low, high):
        if levels[first_row + row] != this:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            other = int64(ends[edge])
            if marks[other] == 0 and there[other] != 0:
                marks[other] = this + 1  # as do other threads
                found += 1
    return found


@njit(cache=True, nogil=True)
def _pull(
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    among: Array,
    marks: Array,
) -> int:
    """Mark the nodes ``among`` that have a marked neighbour; return how many were marked."""
    ends, marked = pointer(indices), pointer(marks)
    found = 0
    for row in range(low, high):
        node = first_row + row
        if among[node] == 0 or marks[node] != 0:
            continue
        for edge in range(indptr[row], indptr[row + 1]):
            if marked[int64(ends[edge])] != 0:
                marks[node] = 1
                found += 1
                break
    return found


@njit(cache=True, nogil=True)
def _count_left(
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    left: Array,
    counts: Array,
) -> int:
    for row in range(low, high):
        node = first_row + row
        if left[node] != 0:
            for edge in range(indptr[row], indptr[row + 1]):
                counts[node] += left[indices[edge]]
    return 0


@njit(cache=True, nogil=True)
def _fill_left(
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    left: Array,
    numbers: Array,
    starts: Array,
    ends: Array,
) -> int:
    for row in range(low, high):
        node = first_row + row
        if left[node] == 0:
            continue
        at = starts[numbers[node]]
        for edge in range(indptr[row], indptr[row + 1]):
            if left[indices[edge]] != 0:
                ends[at] = numbers[indices[edge]]
                at += 1
    return 0
