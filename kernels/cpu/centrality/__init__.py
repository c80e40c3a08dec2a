"""Centralities of many small graphs in Numba; names and meaning are naive/centrality.py's.

Every function releases the GIL and runs on one thread, unless it is given more: batches are
computed side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.kernels.centrality_rules import GraphBatch, Paths, Triangles
from penstock.kernels.cpu.centrality.betweenness import add_betweenness, add_weighted_betweenness
from penstock.kernels.cpu.centrality.breadth_first import add_paths, fill_distances
from penstock.kernels.cpu.centrality.delta_stepping import (
    add_weighted_paths,
    fill_weighted_distances,
)
from penstock.kernels.cpu.centrality.folded import add_folded_betweenness
from penstock.kernels.cpu.centrality.pagerank import power_iteration
from penstock.kernels.cpu.centrality.triangles import count_triangles

__all__ = [
    "betweenness",
    "distances",
    "pagerank",
    "shortest_paths",
    "triangles",
]

# Limits of a small graph. All threads of a worker share a larger one, and have separate memory for
# its nodes only.
SMALL_ITEMS = 1 << 22


def shortest_paths(batch: GraphBatch, sources: Array | None = None) -> Paths:
    """Return the results of the shortest paths from ``sources`` [default: all nodes]."""
    found = Paths(np.zeros(batch.nodes, np.int64), *np.zeros((3, batch.nodes)))
    by_graph = _sources(batch, sources)
    if batch.weights is None:
        add_paths(*_graphs(batch), *by_graph, *found)
    else:
        add_weighted_paths(*_graphs(batch), frozen_view(batch.weights), *by_graph, *found)
    return found


def distances(batch: GraphBatch) -> Array:
    """Return the distances of all pairs, one square matrix per graph, one after another."""
    size = int((batch.sizes**2).sum())
    if batch.weights is None:
        found = np.full(size, -1, np.int32)
        fill_distances(*_graphs(batch), found)
        return found
    far = np.full(size, np.inf)
    fill_weighted_distances(*_graphs(batch), frozen_view(batch.weights), far)
    return far


def betweenness(
    batch: GraphBatch,
    sources: Array | None = None,
    *,
    endpoints: bool = False,
    edges: bool = False,
    dtype: Any = np.float64,
) -> tuple[Array, Array | None]:
    """Return sums over sources of the shares of shortest paths through nodes, and over edges.

    (nodes,) float64, and (edges,) float64 if asked; counted in ``dtype`` or better. Edges of
    weight 0 are counted as NetworkX does, which depends on the order of the neighbours.
    """
    nodes = np.zeros(batch.nodes)
    arcs = np.zeros(len(batch.indices) if edges else 0)
    by_graph = _sources(batch, sources)
    if batch.weights is None:
        add = add_folded_betweenness if _is_small(batch) else add_betweenness
        add(*_graphs(batch), *by_graph, endpoints, nodes, arcs)
    else:
        weights = frozen_view(batch.weights)
        add_weighted_betweenness(*_graphs(batch), weights, *by_graph, endpoints, nodes, arcs)
    return nodes, arcs if edges else None


def pagerank(
    batch: GraphBatch,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    most: int = 100,
) -> tuple[Array, Array]:
    """Return PageRank and the number of steps to convergence per graph: -1 if above ``most``."""
    ranks, steps = np.empty(batch.nodes), np.empty(batch.graphs, np.int32)
    weights = frozen_view(np.ones(0) if batch.weights is None else batch.weights)
    power_iteration(*_graphs(batch), weights, damping, tolerance, most, ranks, steps)
    return ranks, steps


def triangles(
    batch: GraphBatch, multiplicities: Array | None = None, *, threads: int | None = 1
) -> Triangles:
    """Return the closed walks of three steps of symmetric graphs; loops are ignored."""
    return count_triangles(batch, multiplicities, threads)


def _graphs(batch: GraphBatch) -> tuple[Array, Array, Array]:
    return frozen_view(batch.ptr), frozen_view(batch.indptr), frozen_view(batch.indices)


def _sources(batch: GraphBatch, sources: Array | None) -> tuple[Array, Array]:
    """Return the starts of each graph's sources, (graphs + 1,) int64, and the sources."""
    if sources is None:
        return np.array(batch.ptr), np.arange(batch.nodes, dtype=np.int64)
    sources = np.sort(np.asarray(sources, np.int64))
    return np.searchsorted(sources, batch.ptr), sources


def _is_small(batch: GraphBatch) -> bool:
    """Return whether every thread may copy the edges of the batch's largest graph."""
    edges, sizes = np.diff(batch.indptr[batch.ptr]), batch.sizes
    return int((edges + sizes).max(initial=0)) <= SMALL_ITEMS
