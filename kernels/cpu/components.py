"""Connected components in Numba, on all cores; meaning as in naive/components.py.

Threads join trees by an atomic exchange of a root's parent, always the larger root's, so that the
smallest node of a component is its root in any order. As in Afforest (Sutton, Ben-Nun and Barak,
2018), two edges of each node come first: then nearly all nodes of most graphs are in one tree, and
if edges are stored at both ends, the others of its nodes are not read. Ranks join the forests of
all after both passes, so that they know the same tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import int64

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer, swap_if_equal
from penstock.kernels.ranks import Ranks, cuts, passed_around, share
from penstock.kernels.row_blocks import RowBlock, row_blocks
from penstock.threads import spread

_FIRST = 2  # edges of each node that are read at first
_SAMPLES = 1024
_ALL = np.iinfo(np.int64).max
_NODES = 1 << 18  # that a thread takes at a time


def new_forest(nodes: int) -> Array:
    """Return ``parent``: every node is a tree; (nodes,) int32 or int64."""
    return np.arange(nodes, dtype=id_dtype(nodes))


def union_rows(parent: Array, indptr: Array, indices: Array, first_row: int = 0) -> None:
    """Join row ``first_row + r`` with its neighbours ``indices[indptr[r]:indptr[r + 1]]``."""
    rows = [CSR(indptr, indices, first_row=first_row)]
    _join(row_blocks(rows), parent, 0, _ALL, -1, None)


def component_labels(parent: Array) -> Array:
    """Return the component of each node: 0, 1, ... in the order of their smallest members."""
    labels: Array = _component_labels(parent)
    return labels


def components(
    rows: Sequence[CSR],
    *,
    symmetric: bool,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> Array:
    """Return the component of each node of a graph, given as consecutive row ranges."""
    parent = new_forest(sum(each.rows for each in rows))
    blocks = row_blocks(rows)
    mine = blocks[slice(*share(cuts(len(blocks), ranks), ranks))]
    _join(mine, parent, 0, _FIRST, -1, threads)
    _meet(parent, threads, ranks)
    giant = -1
    if symmetric and len(parent):
        some = parent[:: max(1, len(parent) // _SAMPLES)]
        roots, counts = np.unique(some, return_counts=True)
        giant = int(roots[counts.argmax()])
    _join(mine, parent, _FIRST, _ALL, giant, threads)
    if ranks is not None:
        _meet(parent, threads, ranks)
    return component_labels(parent)


def _meet(parent: Array, threads: int | None, ranks: Ranks | None) -> None:
    """Make each node's root its parent, in the forest of all ranks."""

    def shorten() -> None:
        starts = range(0, len(parent), _NODES)
        spread(lambda low: _shorten(parent, low, low + _NODES), starts, threads)

    shorten()
    if ranks is None or ranks.size == 1:
        return
    each_once = np.arange(len(parent) + 1)
    for other in passed_around(parent.copy(), np.empty_like(parent), ranks):
        _join(row_blocks([CSR(each_once, other)]), parent, 0, _ALL, -1, threads)
    shorten()


def _join(
    blocks: Sequence[RowBlock], parent: Array, skip: int, stop: int, giant: int, threads: int | None
) -> None:
    """Join all rows with their neighbours ``skip .. stop``, except those in the tree of a node."""

    def join(block: RowBlock) -> None:
        indptr, indices, _, low, high, first_row = block.arrays()
        _join_rows(parent, indptr, indices, low, high, first_row, skip, stop, giant)

    spread(join, blocks, threads)


@njit(cache=True)
def _link(parent: Array, a: int, b: int) -> None:
    """Join the trees of two nodes; other threads may join them, too, or shorten their paths."""
    forest = pointer(parent)
    up, down = int64(forest[a]), int64(forest[b])
    while up != down:
        high, low = max(up, down), min(up, down)
        above = int64(forest[high])
        if above == low:
            return
        if above == high:
            if swap_if_equal(forest, high, parent.dtype.type(high), parent.dtype.type(low)) == high:
                return
            above = int64(forest[high])
        up, down = int64(forest[above]), int64(forest[low])


@njit(cache=True, nogil=True)
def _join_rows(
    parent: Array,
    indptr: Array,
    indices: Array,
    low: int,
    high: int,
    first_row: int,
    skip: int,
    stop: int,
    giant: int,
) -> None:
    forest, ends = pointer(parent), pointer(indices)
    for row in range(low, high):
        node = first_row + row
        begin, end = indptr[row] + skip, indptr[row + 1]
        if begin >= end or (giant >= 0 and _root(parent, node) == giant):
            continue
        for edge in range(begin, min(end, begin + min(stop, end - begin))):
            other = int64(ends[edge])
            if forest[node] != forest[other]:
                _link(parent, node, other)


@njit(cache=True)
def _root(parent: Array, node: int) -> int:
    while parent[node] != node:
        node = int64(parent[node])
    return node


@njit(cache=True, nogil=True)
def _shorten(parent: Array, low: int, high: int) -> None:
    for node in range(low, min(high, len(parent))):
        while parent[parent[node]] != parent[node]:
            parent[node] = parent[parent[node]]


@njit(cache=True, nogil=True)
def _component_labels(parent: Array) -> Array:
    labels = np.empty_like(parent)
    count = 0
    for node in range(len(parent)):
        # The parent is smaller, so its label exists.
        if parent[node] == node:
            labels[node] = count
            count += 1
        else:
            labels[node] = labels[parent[node]]
    return labels
