"""The in-edges of a graph, given as consecutive row ranges, on all cores.

Edges are first scattered into ranges of target nodes, which fit into a cache, then sorted within
each: a scatter to all nodes at once would miss the cache at every edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.files import map_npy
from penstock.kernels.compiled import njit
from penstock.kernels.ranks import EdgesOfRank, Ranks, cuts, share
from penstock.kernels.row_blocks import row_blocks, shares_of
from penstock.threads import spread

EDGE_BYTES, WEIGHT_BYTES = 12, 16  # of an edge while they are made, with ids of 32 bits
_BUCKET_BITS = 16  # nodes of a bucket, at most 2 to this power
_BLOCK = 1 << 21


def transpose(
    rows: Sequence[CSR],
    *,
    weighted: bool = False,
    folder: Path | None = None,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> list[CSR]:
    """Return the sources of each node's in-edges, ascending, and their weights if wanted.

    folder  holds the edges, mapped, of a graph that exceeds memory [default: they are in memory]
    ranks   of which each gets the in-edges of its share of the nodes
    """
    empty = partial(_empty, folder)
    nodes = sum(each.rows for each in rows)
    edges = sum(each.edges for each in rows)
    of_all, among = None, (0, -1)
    if ranks is not None:
        of_all = _of_all_ranks(rows, nodes, ranks)
        _, nodes_of = shares_of(row_blocks([CSR(of_all, np.empty(0))]), nodes, ranks)
        among = share(nodes_of, ranks)
        edges = int(of_all[among[1]] - of_all[among[0]])
    buckets = max(1, (nodes + (1 << _BUCKET_BITS) - 1) >> _BUCKET_BITS)
    blocks = row_blocks(rows, _BLOCK)
    weighted = weighted and all(each.weights is not None for each in rows)
    counts = np.zeros((len(blocks), buckets), np.int64)

    def count(number: int) -> None:
        indptr, indices, _, low, high, _ = blocks[number].arrays()
        _count(indices, indptr[low], indptr[high], *among, counts[number])

    spread(count, range(len(blocks)), threads)
    # Buckets one after another, in each the blocks in their order: sources stay ascending.
    places = offsets_of(counts.T.ravel())
    starts = np.append(places[:-1].reshape(buckets, -1)[:, :1].ravel(), places[-1])
    cursors = places[:-1].reshape(buckets, -1).T.copy()
    dtype = id_dtype(nodes)
    sources, targets = empty("sources", edges, dtype), empty("targets", edges, dtype)
    columns = empty("columns", edges if weighted else 0, np.dtype(np.float64))

    def scatter(number: int) -> None:
        given = blocks[number].arrays(weighted=weighted)
        _scatter(*given, *among, cursors[number], sources, targets, columns)

    spread(scatter, range(len(blocks)), threads)
    indptr = np.zeros(nodes + 1, np.int64)
    indices = empty("indices", edges, dtype)
    weights = empty("weights", len(columns), columns.dtype)

    def sort(bucket: int) -> None:
        first, last = bucket << _BUCKET_BITS, min((bucket + 1) << _BUCKET_BITS, nodes)
        low, high = int(starts[bucket]), int(starts[bucket + 1])
        _sort(first, last, low, high, sources, targets, columns, indptr, indices, weights)

    spread(sort, range(buckets), threads)
    kept = weights if weighted else None
    if of_all is None:
        return [CSR(indptr, indices, weights=kept)]
    return [EdgesOfRank(of_all, indices, weights=kept, first_edge=int(of_all[among[0]]))]


def _of_all_ranks(rows: Sequence[CSR], nodes: int, ranks: Ranks) -> Array:
    """Return the start of each node's in-edges, of which each rank counts some."""
    counts, blocks = np.zeros(nodes, np.int64), row_blocks(rows, _BLOCK)
    for block in blocks[slice(*share(cuts(len(blocks), ranks), ranks))]:
        indptr, indices, _, low, high, _ = block.arrays()
        _count_nodes(indices, indptr[low], indptr[high], counts)
    ranks.allreduce(counts)
    return offsets_of(counts)


def _empty(folder: Path | None, name: str, length: int, dtype: np.dtype[Any]) -> Array:
    if folder is None or length == 0:
        return np.empty(length, dtype)
    array: Array = map_npy(folder / f"{name}.npy", (length,), dtype).view(np.ndarray)
    return array


@njit(cache=True, nogil=True)
def _count_nodes(indices: Array, low: int, high: int, counts: Array) -> None:
    for edge in range(low, high):
        counts[indices[edge]] += 1


@njit(cache=True, nogil=True)
def _count(indices: Array, low: int, high: int, first: int, stop: int, counts: Array) -> None:
    """Count the edges to each bucket, of targets ``first .. stop``, or with -1 of all."""
    some = stop >= 0
    for edge in range(low, high):
        target = indices[edge]
        if not some or first <= target < stop:
            counts[target >> _BUCKET_BITS] += 1


@njit(cache=True, nogil=True)
def _scatter(
    indptr: Array,
    indices: Array,
    weights: Array,
    low: int,
    high: int,
    first_row: int,
    first: int,
    stop: int,
    cursor: Array,
    sources: Array,
    targets: Array,
    columns: Array,
) -> None:
    some = stop >= 0
    for row in range(low, high):
        for edge in range(indptr[row], indptr[row + 1]):
            target = indices[edge]
            if some and (target < first or target >= stop):
                continue
            bucket = target >> _BUCKET_BITS
            at = cursor[bucket]
            cursor[bucket] = at + 1
            sources[at], targets[at] = first_row + row, target
            if len(columns) > 0:
                columns[at] = weights[edge]


@njit(cache=True, nogil=True)
def _sort(
    first: int,
    last: int,
    low: int,
    high: int,
    sources: Array,
    targets: Array,
    columns: Array,
    indptr: Array,
    indices: Array,
    weights: Array,
) -> None:
    """Sort the edges ``low .. high`` by their targets, nodes ``first .. last``."""
    cursor = np.zeros(last - first + 1, np.int64)
    for edge in range(low, high):
        cursor[targets[edge] - first + 1] += 1
    cursor[0] = low
    for node in range(last - first):
        cursor[node + 1] += cursor[node]
        indptr[first + node + 1] = cursor[node + 1]
    for edge in range(low, high):
        node = targets[edge] - first
        at = cursor[node]
        cursor[node] = at + 1
        indices[at] = sources[edge]
        if len(columns) > 0:
            weights[at] = columns[edge]
