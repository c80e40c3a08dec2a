"""Centralities by definition, from all distances of a graph; see centrality_rules.py.

paths = shortest_paths(batch)                  # then closeness(paths, batch.ptr)
nodes, edges = betweenness(batch, edges=True)  # then times betweenness_scale(batch.ptr, ...)
matrix = distances(batch)
ranks, iterations = pagerank(batch)
found = triangles(batch)                       # then clustering(found, directed=False)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.centrality_rules import GraphBatch, Paths, Triangles


def shortest_paths(batch: GraphBatch, sources: Array | None = None) -> Paths:
    """Return the results of the shortest paths from ``sources`` [default: all nodes]."""
    reached = np.zeros(batch.nodes, np.int64)
    total, inverse, eccentricity = np.zeros((3, batch.nodes))
    for first, matrix, _ in _all_distances(batch):
        for source in _within(sources, first, len(matrix)):
            row = matrix[source]
            there = np.isfinite(row)
            far = there & (row > 0)
            reached[first : first + len(row)] += there & (np.arange(len(row)) != source)
            total[first : first + len(row)][there] += row[there]
            inverse[first : first + len(row)][far] += 1 / row[far]
            eccentricity[first + source] = row.max()
    return Paths(reached, total, inverse, eccentricity)


def distances(batch: GraphBatch) -> Array:
    """Return the distances of all pairs, one square matrix per graph, one after another.

    (sum of sizes squared,): int32 with -1 if there is no path; with weights float64 with inf.
    """
    found = [matrix.ravel() for _, matrix, _ in _all_distances(batch)]
    flat = np.concatenate([*found, np.empty(0)])
    if batch.weights is not None:
        return flat
    return np.where(np.isfinite(flat), flat, -1).astype(np.int32)


def betweenness(
    batch: GraphBatch,
    sources: Array | None = None,
    *,
    endpoints: bool = False,
    edges: bool = False,
    dtype: Any = np.float64,
) -> tuple[Array, Array | None]:
    """Return sums over sources of the shares of shortest paths through nodes, and over edges.

    (nodes,) float64, and (edges,) float64 if requested; counted in ``dtype`` or better. Weights
    must be positive: an edge of length 0 is on infinitely many shortest paths (the other backends
    count those as NetworkX does).
    """
    nodes = np.zeros(batch.nodes)
    arcs = np.zeros(len(batch.indices))
    for first, far, paths in _all_distances(batch):
        size = len(far)
        for s in _within(sources, first, size):
            for t in range(size):
                if s == t or not np.isfinite(far[s, t]):
                    continue
                for v in range(size):
                    on_path = far[s, v] + far[v, t] == far[s, t]
                    if on_path and (endpoints or v not in (s, t)):
                        nodes[first + v] += paths[s, v] * paths[v, t] / paths[s, t]
                    for arc in range(*batch.indptr[first + v : first + v + 2]):
                        w, length = batch.indices[arc] - first, _length(batch, arc)
                        if v != w and far[s, v] + length + far[w, t] == far[s, t]:
                            arcs[arc] += paths[s, v] * paths[w, t] / paths[s, t]
    return nodes, arcs if edges else None


def pagerank(
    batch: GraphBatch,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    most: int = 100,
) -> tuple[Array, Array]:
    """Return PageRank and the number of steps to convergence per graph: -1 if above ``most``.

    (nodes,) float64 and (graphs,) int32. It has converged if a step changes it by less than
    ``tolerance`` per node. A node without edges, or with zero weights only, gives to all equally.
    """
    ranks, steps = np.zeros(batch.nodes), np.full(batch.graphs, -1, np.int32)
    for graph, (first, stop) in enumerate(zip(batch.ptr, batch.ptr[1:], strict=False)):
        size = stop - first
        matrix = np.zeros((size, size))
        for node in range(size):
            for arc in range(*batch.indptr[first + node : first + node + 2]):
                matrix[node, batch.indices[arc] - first] = _length(batch, arc)
        sums = matrix.sum(1, keepdims=True)
        gives = np.divide(matrix, sums, out=np.full_like(matrix, 1 / max(size, 1)), where=sums > 0)
        x = np.full(size, 1 / max(size, 1))
        for step in range(1, most + 1):
            before, x = x, damping * x @ gives + (1 - damping) / max(size, 1)
            if size == 0 or np.abs(x - before).sum() < size * tolerance:
                steps[graph] = step
                break
        ranks[first:stop] = x
    return ranks, steps


def triangles(
    batch: GraphBatch, multiplicities: Array | None = None, *, threads: int | None = 1
) -> Triangles:
    """Return the closed walks of three steps of symmetric graphs; loops are ignored.

    multiplicities  (edges,) int8, number of edges, 1 or 2 [default: 1]
    threads         of a CPU; None: all cores
    """
    found = Triangles(*np.zeros((3, batch.nodes), np.int64))
    for first, stop in zip(batch.ptr, batch.ptr[1:], strict=False):
        matrix = np.zeros((stop - first, stop - first), np.int64)
        for node in range(stop - first):
            arcs = slice(*batch.indptr[first + node : first + node + 2])
            count = 1 if multiplicities is None else multiplicities[arcs]
            matrix[node, batch.indices[arcs] - first] = count
        np.fill_diagonal(matrix, 0)
        found.closed[first:stop] = np.diag(matrix @ matrix @ matrix)
        found.degree[first:stop] = matrix.sum(1)
        found.mutual[first:stop] = (matrix == 2).sum(1)
    return found


def _all_distances(batch: GraphBatch) -> Iterator[tuple[int, Array, Array]]:
    """Yield each graph's first node, distances and numbers of shortest paths, (n, n) float64."""
    for first, stop in zip(batch.ptr, batch.ptr[1:], strict=False):
        size = int(stop - first)
        far = np.full((size, size), np.inf)
        np.fill_diagonal(far, 0)
        arcs = [
            (node, int(batch.indices[arc] - first), _length(batch, arc))
            for node in range(size)
            for arc in range(*batch.indptr[first + node : first + node + 2])
        ]
        for _ in range(size):  # Bellman and Ford
            for a, b, length in arcs:
                far[:, b] = np.minimum(far[:, b], far[:, a] + length)
        paths = np.zeros((size, size))
        for source in range(size):
            paths[source, source] = 1
            for b in sorted(range(size), key=lambda node: far[source, node]):
                for a, to, length in arcs:
                    on_path = a != b == to != source and np.isfinite(far[source, b])
                    if on_path and far[source, a] + length == far[source, b]:
                        paths[source, b] += paths[source, a]
        yield int(first), far, paths


def _length(batch: GraphBatch, arc: int) -> float:
    return 1.0 if batch.weights is None else float(batch.weights[arc])


def _within(sources: Array | None, first: int, size: int) -> list[int]:
    if sources is None:
        return list(range(size))
    return [int(source) - first for source in sources if first <= source < first + size]
