"""From edges of many small graphs in tables to a batch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from penstock.arrays import Array

NO_SOURCE, NO_TARGET = (
    1,
    2,
)  # missing ends of a row: with one end it is a node, with none a graph

LANES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # seeds of 64 bits each


def number_nodes(
    starts: Array, sources: Array, targets: Array, flags: Array
) -> tuple[Array, Array, Array, Array]:
    """Number the nodes of each graph in the order of their ids.

    starts   (graphs + 1,) int64: the first row of each graph
    sources, targets  (rows,) int64, any numbers; flags: (rows,) uint8, missing ends
    Returns the ids of the nodes of all graphs, (nodes,); the start of each graph's nodes,
    (graphs + 1,) int64; and the ends of each row by number in its graph, (rows,) int32, -1: none.
    """
    names: list[int] = []
    ptr = [0]
    us, vs = np.full(len(sources), -1, np.int32), np.full(len(sources), -1, np.int32)
    for first, stop in pairwise(starts):
        rows = range(first, stop)
        ends = {int(sources[row]) for row in rows if not flags[row] & NO_SOURCE}
        ends |= {int(targets[row]) for row in rows if not flags[row] & NO_TARGET}
        number = {name: i for i, name in enumerate(sorted(ends))}
        for row in rows:
            us[row] = -1 if flags[row] & NO_SOURCE else number[int(sources[row])]
            vs[row] = -1 if flags[row] & NO_TARGET else number[int(targets[row])]
        names += sorted(ends)
        ptr.append(len(names))
    return np.array(names, np.int64), np.array(ptr, np.int64), us, vs


def rows_of_edges(
    starts: Array,
    ptr: Array,
    us: Array,
    vs: Array,
    weights: Array | None,
    *,
    directed: bool,
    added: bool = False,
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return indptr, indices, weights and sums of all graphs side by side, as in a GraphBatch.

    Rows ascend, parallel edges are one, the shortest; undirected edges are stored both ways.

    added  whether weights [default: 1] of parallel edges are added, if there are some
    """
    rows: list[dict[int, list[float]]] = [{} for _ in range(int(ptr[-1]))]
    for graph, (first, stop) in enumerate(pairwise(starts)):
        for row in range(first, stop):
            if us[row] < 0 or vs[row] < 0:
                continue
            u, v = int(ptr[graph] + us[row]), int(ptr[graph] + vs[row])
            weight = 1.0 if weights is None else float(weights[row])
            for a, b in {(u, v)} if directed else {(u, v), (v, u)}:
                rows[a].setdefault(b, []).append(weight)
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    indices = np.array([b for row in rows for b in sorted(row)], np.int32)
    each = [row[b] for row in rows for b in sorted(row)]
    shortest = None if weights is None else np.array([min(one) for one in each], np.float64)
    several = added and any(len(one) > 1 for one in each)
    return indptr, indices, shortest, np.array([sum(one) for one in each]) if several else None


def parallel_edges(indptr: Array, indices: Array) -> bool:
    """Return whether a row of ascending neighbours has a repeated one."""
    rows = (indices[low:high].tolist() for low, high in pairwise(indptr))
    return any(len(set(row)) < len(row) for row in rows)


def structures(ptr: Array, indptr: Array, indices: Array, *weights: Array) -> Array:
    """Return 128 bits of each graph, and its number of nodes: (graphs, 3) uint64.

    The bits are those of the number of nodes, and of the positions of both ends and the weights of
    each edge, whatever the graph's place in the batch.

    weights  some columns of (edges,) float64; where one equals the one before (the first: 1) it
             adds nothing
    """
    sizes = np.diff(ptr)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    start = np.repeat(ptr[:-1], sizes)[rows]
    edges = ((rows - start) << 32 | indices - start).view(np.uint64)
    found = np.empty((len(sizes), 3), np.uint64)
    for lane, seed in enumerate(LANES):
        mixed = _mix(edges ^ np.uint64(seed))
        before: Array = np.ones(1)
        for column in weights:
            differs = column != before
            mixed = np.where(differs, _mix(mixed ^ column.view(np.uint64)), mixed)
            before = column
        summed = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        at = summed[indptr[ptr]]
        found[:, lane] = _mix(at[1:] - at[:-1] ^ sizes.astype(np.uint64))
    found[:, 2] = sizes
    return found


def _mix(values: Array) -> Array:
    """Return well-mixed bits of each number: the finalizer of SplitMix64."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ values >> np.uint64(31))


def self_loops(ptr: Array, indptr: Array, indices: Array) -> Array:
    """Return the number of self loops of each graph, (graphs,) int64."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    graphs = np.searchsorted(ptr, rows[rows == indices], side="right") - 1
    return np.bincount(graphs, minlength=len(ptr) - 1)
