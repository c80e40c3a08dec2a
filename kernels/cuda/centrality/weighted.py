"""Weighted paths of a batch on the GPU: distances by relaxation, then paths over tight edges."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.items import plan_items
from penstock.kernels.cuda.centrality.teams import (
    NULL,
    Teams,
    busy,
    incoming,
    padded,
    run,
    sources_of,
    summed,
)
from penstock.kernels.cuda.module import c_name
from penstock.kernels.cuda.uploads import to_gpu

_FILE = "centrality/weighted"
_TEAMS = (
    Teams(32, 0, 8),
    Teams(64, 256, 32),
    Teams(128, 512, 32),
    Teams(256, 512, 16),
    Teams(1 << 15, 1024, 8),
)
_LANES = 32  # the most sources that a team takes at once


def weighted_paths(batch: GraphBatch, sources: DeviceArray | None) -> Paths:
    """Return the results of the shortest paths from ``sources``."""
    return _search(batch, sources, NULL, NULL)


def weighted_distances(batch: GraphBatch) -> DeviceArray:
    """Return the distances of all pairs, one square matrix per graph, inf if there is no path."""
    sizes = np.diff(cp.asnumpy(batch.ptr))
    starts = np.concatenate([[0], np.cumsum(sizes**2)])
    distances = cp.full(int(starts[-1]), cp.inf)
    _search(batch, None, distances, to_gpu(starts))
    return distances


def _search(batch: GraphBatch, sources: DeviceArray | None, distances: Any, starts: Any) -> Paths:
    ptr, source_starts, listed = sources_of(batch, sources)
    planned = plan_items(ptr, source_starts, _LANES, busy(batch))
    reached = cp.empty(planned.slots, cp.int64)
    total, inverse = cp.empty(planned.slots), cp.empty(planned.slots)
    farthest = cp.empty(len(listed))
    name = c_name(batch.indices)
    run(
        _FILE,
        "weighted_paths",
        lambda teams: f"{name}, {teams.sources}",
        planned.items,
        _TEAMS,
        # Two sums, a count and the distances per node, and the largest one per lane.
        lambda teams, nodes: padded(nodes * (20 + 8 * teams.sources) + 8 * teams.sources),
        (*incoming(batch), listed),
        (reached, total, inverse, farthest, distances, starts),
    )
    eccentricity = cp.zeros(batch.nodes)
    eccentricity[listed] = farthest
    nodes = batch.nodes
    return Paths(
        summed(planned, reached, nodes),
        summed(planned, total, nodes),
        summed(planned, inverse, nodes),
        eccentricity,
    )


def weighted_betweenness(
    batch: GraphBatch, sources: DeviceArray | None, *, endpoints: bool, edges: bool
) -> tuple[DeviceArray, DeviceArray | None] | None:
    """Return the sums of nodes, and of edges if requested; None if a weight adds nothing.

    A weight of 0, or one that is lost in a sum, makes a cycle of shortest paths, which only a
    search in order of distances counts as NetworkX does.
    """
    if batch.weights is None or not bool(cp.all(batch.weights > 0)):
        return None
    ptr, source_starts, listed = sources_of(batch, sources)
    # An edge's sum has one writer, so then a graph is one item.
    planned = plan_items(ptr, source_starts, _LANES, 1 if edges else busy(batch))
    nodes = cp.empty(planned.slots)
    arcs = cp.zeros(len(batch.indices) if edges else 0)
    failed = cp.zeros(max(batch.graphs, 1), cp.uint8)
    name = c_name(batch.indices)
    outward = (batch.indptr, batch.indices, batch.weights)
    run(
        _FILE,
        "weighted_betweenness",
        lambda teams: f"{name}, {teams.sources}",
        planned.items,
        _TEAMS,
        # A sum, distances, paths and shares per node, and a count per lane.
        lambda teams, nodes: padded(nodes * (8 + 24 * teams.sources) + 4 * teams.sources),
        (*incoming(batch), *outward, listed),
        (bool(endpoints), nodes, arcs, failed),
        edges,
    )
    if bool(failed.any()):
        return None
    return summed(planned, nodes, batch.nodes), arcs if edges else None
