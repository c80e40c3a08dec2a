"""Centralities of a batch of graphs on the GPU; names and meaning are naive/centrality.py's.

Graphs are sorted by size: a warp takes a tiny one, a block any other, and several blocks share the
sources of one if there are few graphs. Mutable data lies in shared memory, or in global memory if a
graph is too large for that. Of one graph that fills the GPU, betweenness is searches.py's, and
shortest paths are words.py's. Sums are of one order in every run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths, Triangles
from penstock.kernels.cpu import centrality as cpu
from penstock.kernels.cuda.centrality import whole, words
from penstock.kernels.cuda.centrality.searches import LEAST_ITEMS, betweenness_of_one
from penstock.kernels.cuda.centrality.unweighted import (
    unweighted_betweenness,
    unweighted_distances,
    unweighted_paths,
)
from penstock.kernels.cuda.centrality.weighted import (
    weighted_betweenness,
    weighted_distances,
    weighted_paths,
)

__all__ = [
    "betweenness",
    "distances",
    "pagerank",
    "shortest_paths",
    "triangles",
]


def shortest_paths(batch: GraphBatch, sources: DeviceArray | None = None) -> Paths:
    """Return the results of the shortest paths from ``sources`` [default: all nodes]."""
    if batch.weights is not None:
        return weighted_paths(batch, sources)
    if batch.graphs == 1 and batch.nodes + len(batch.indices) > words.LEAST_ITEMS:
        return words.paths_of_one(batch, sources)
    return unweighted_paths(batch, sources)


def distances(batch: GraphBatch) -> DeviceArray:
    """Return the distances of all pairs, one square matrix per graph, one after another."""
    return unweighted_distances(batch) if batch.weights is None else weighted_distances(batch)


def betweenness(
    batch: GraphBatch,
    sources: DeviceArray | None = None,
    *,
    endpoints: bool = False,
    edges: bool = False,
    dtype: Any = np.float64,
) -> tuple[DeviceArray, DeviceArray | None]:
    """Return sums over sources of the shares of shortest paths through nodes, and over edges.

    (nodes,) float64, and (edges,) float64 if asked; counted in ``dtype`` or better: graphs with
    more paths than float32 can count, and weighted ones, are computed in float64. If a weight
    is 0 the CPU counts, in the order that NetworkX does.
    """
    options = {"endpoints": endpoints, "edges": edges}
    alone = batch.graphs == 1 and batch.nodes + len(batch.indices) > LEAST_ITEMS
    if alone and batch.weights is None and not edges:
        return betweenness_of_one(batch, sources, endpoints=endpoints), None
    if batch.weights is None:
        return unweighted_betweenness(batch, sources, dtype=dtype, **options)
    found = weighted_betweenness(batch, sources, **options)
    if found is None:
        nodes, arcs = cpu.betweenness(_on_host(batch), _host(sources), **options)
        found = cp.asarray(nodes), None if arcs is None else cp.asarray(arcs)
    return found


def pagerank(
    batch: GraphBatch,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    most: int = 100,
) -> tuple[DeviceArray, DeviceArray]:
    """Return PageRank and the number of steps to convergence per graph: -1 if above ``most``."""
    return whole.pagerank(batch, damping, tolerance, most)


def triangles(
    batch: GraphBatch, multiplicities: DeviceArray | None = None, *, threads: int | None = 1
) -> Triangles:
    """Return the closed walks of three steps of symmetric graphs; loops are ignored."""
    return whole.triangles(batch, multiplicities)


def _on_host(batch: GraphBatch) -> GraphBatch:
    arrays = {name: _host(getattr(batch, name)) for name in ("ptr", "indptr", "indices", "weights")}
    return replace(batch, **arrays)


def _host(array: DeviceArray | None) -> Any:
    return None if array is None else cp.asnumpy(array)
