"""Communities of one undirected graph: levels of moving, refining and aggregating, on any backend.

    labels = communities(kernels, matrix, "leiden", resolution=1.0, seed=0)

Leiden (Traag, Waltman and van Eck, 2019), whose refinement here takes the best merge, not a drawn
one: a community is connected. Louvain does not refine. Label propagation moves each node to the
label of most of its edges, on one level. Only the order of nodes is drawn, by seed and level, and
each level runs on one thread: labels depend on nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Array

METHODS = ("leiden", "louvain", "labels")
LEAST = 1e-10  # gain of a move, as a share of the strength of the node
_PASSES = 3  # over all levels, each from the communities of the one before; the last may be idle


class Adjacency(NamedTuple):
    """A symmetric matrix of weights.

    indptr, indices, weights  its rows, float64; an entry may occur twice, then it is the sum
    strength                  (nodes,) float64, the sum of each row
    A loop counts twice: its entry is twice its weight.
    """

    indptr: Array
    indices: Array
    weights: Array
    strength: Array

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1


def adjacency(
    indptr: Array, indices: Array, weights: Array | None, *, directed: bool = False
) -> Adjacency:
    """Return the matrix of a graph.

    directed  whether each edge is stored once: its direction is ignored; otherwise at both ends,
              and a loop once
    """
    weights = np.ones(len(indices)) if weights is None else np.array(weights, np.float64)
    if directed:
        indptr, indices, weights = both_ways(indptr, indices, weights)
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    if not directed:
        weights[sources == indices] *= 2
    strength = np.bincount(sources, weights, minlength=len(indptr) - 1)
    return Adjacency(np.asarray(indptr), np.asarray(indices), weights, strength)


def both_ways(indptr: Array, indices: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return the rows of a square matrix plus its transpose; columns ascend."""
    import scipy.sparse as sp

    once = sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1,) * 2)
    both = (once + once.T).tocsr()
    both.sort_indices()
    return both.indptr.astype(np.int64), both.indices.astype(indices.dtype, copy=False), both.data


def communities(
    kernels: Any, matrix: Adjacency, method: str, *, resolution: float = 1.0, seed: int = 0
) -> Array:
    """Return the community of each node, (nodes,) int64: 0, 1, ... by their first nodes."""
    total = float(matrix.strength.sum())
    labels = np.arange(matrix.nodes)
    if total == 0:
        return labels
    factor = 0.0 if method == "labels" else resolution / total
    levels = 0
    for _ in range(1 if method == "labels" else _PASSES):
        level, of = matrix, np.arange(matrix.nodes)
        moved = 0
        while True:
            order = np.random.Generator(np.random.Philox(key=[seed, levels])).permutation(
                level.nodes
            )
            levels += 1
            moved += kernels.move(level, order, labels, factor)
            labels = numbered(labels)
            count = int(labels.max()) + 1
            if method == "labels" or count == level.nodes:
                break
            merged = labels
            if method == "leiden":
                refined = numbered(kernels.refine(level, order, labels, factor))
                if refined.max() + 1 < level.nodes:
                    merged = refined
            above = np.empty(int(merged.max()) + 1, np.int64)
            above[merged] = labels
            of, labels = merged[of], above
            level = aggregated(kernels, level, merged)
        labels = numbered(labels[of])
        if moved == 0:
            break
    return connected(matrix, labels) if method == "leiden" else labels


def connected(matrix: Adjacency, labels: Array) -> Array:
    """Return communities whose parts without edges between them are communities of their own.

    Moving a node can leave such parts, of which each alone is better.
    """
    import scipy.sparse as sp

    sources = np.repeat(np.arange(matrix.nodes), np.diff(matrix.indptr))
    inside = (labels[sources] == labels[matrix.indices]) & (matrix.weights > 0)
    ends = sources[inside], matrix.indices[inside]
    shape = matrix.nodes, matrix.nodes
    graph = sp.coo_array((np.ones(len(ends[0]), np.int8), ends), shape=shape)
    return numbered(sp.csgraph.connected_components(graph, directed=False)[1])


def aggregated(kernels: Any, level: Adjacency, merged: Array) -> Adjacency:
    """Return the matrix in which nodes with one label are one node."""
    indptr, indices, weights = kernels.aggregate(level, merged)
    strength = np.bincount(merged, level.strength)
    return Adjacency(indptr, indices, weights, strength)


def numbered(labels: Array) -> Array:
    """Return labels as 0, 1, ... in the order of their first nodes."""
    first = np.full(int(labels.max(initial=-1)) + 1, len(labels), np.int64)
    np.minimum.at(first, labels, np.arange(len(labels)))
    new = np.empty(len(first), np.int64)
    order = np.argsort(first, kind="stable")
    new[order] = np.arange(len(first))
    return np.asarray(new[labels])


def modularity(matrix: Adjacency, labels: Array, *, resolution: float = 1.0) -> float:
    """Return the modularity of communities; 0 without edges."""
    total = float(matrix.strength.sum())
    if total == 0:
        return 0.0
    sources = np.repeat(labels, np.diff(matrix.indptr))
    inside = float(matrix.weights[sources == labels[matrix.indices]].sum())
    strengths = np.bincount(labels, matrix.strength)
    return inside / total - resolution * float(((strengths / total) ** 2).sum())
