"""Unweighted paths of a batch on the GPU: breadth-first searches and Brandes' betweenness."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.items import plan_items
from penstock.kernels.cuda.centrality.teams import (
    C_IDS,
    NULL,
    Teams,
    busy,
    incoming,
    padded,
    run,
    sources_of,
    summed,
)

_SEARCH_FILE = "centrality/breadth_first"
_BETWEENNESS_FILE = "centrality/betweenness"
_WORD = 64  # sources of a breadth-first search
_TEAMS = (
    Teams(32, 0, 16),
    Teams(64, 128, 16),
    Teams(128, 256, 16),
    Teams(255, 256, 16),
    Teams(512, 512, 16),
    Teams(1024, 1024, 16),
    Teams(1 << 15, 1024, 8),
)
_LANES = 32  # as many sources as any team takes at once


def unweighted_paths(batch: GraphBatch, sources: DeviceArray | None) -> Paths:
    """Return what the shortest paths from ``sources`` come to."""
    return _search(batch, sources, NULL, NULL)


def unweighted_distances(batch: GraphBatch) -> DeviceArray:
    """Return the distances of all pairs, a square matrix a graph, -1 where there is no path."""
    sizes = np.diff(cp.asnumpy(batch.ptr))
    starts = np.concatenate([[0], np.cumsum(sizes**2)])
    distances = cp.full(int(starts[-1]), -1, cp.int32)
    _search(batch, None, distances, cp.asarray(starts))
    return distances


def _search(batch: GraphBatch, sources: DeviceArray | None, distances: Any, starts: Any) -> Paths:
    ptr, source_starts, listed = sources_of(batch, sources)
    planned = plan_items(ptr, source_starts, _WORD, busy())
    reached = cp.empty(planned.slots, cp.int64)
    total, inverse = cp.empty(planned.slots), cp.empty(planned.slots)
    farthest = cp.empty(len(listed))
    name = C_IDS[batch.indices.dtype.name]
    run(
        _SEARCH_FILE,
        "breadth_first",
        lambda teams: name,
        planned.items,
        _TEAMS,
        # Two sums, three words and a count a node, and two words.
        lambda teams, nodes: padded(44 * nodes + 16),
        (*incoming(batch)[:2], listed),
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


def unweighted_betweenness(
    batch: GraphBatch,
    sources: DeviceArray | None,
    *,
    endpoints: bool,
    edges: bool,
    dtype: Any,
) -> tuple[DeviceArray, DeviceArray | None]:
    """Return the sums of nodes, and of edges if asked; see naive/centrality.py."""
    ptr, source_starts, listed = sources_of(batch, sources)
    # An edge's sum has one writer, so then a graph is one item.
    planned = plan_items(ptr, source_starts, _LANES, 1 if edges else busy())
    nodes = cp.empty(planned.slots)
    arcs = cp.zeros(len(batch.indices) if edges else 0)
    overflow = cp.zeros(max(batch.graphs, 1), cp.uint8)
    given = (*incoming(batch)[:2], batch.indptr, batch.indices, listed)
    outputs = (bool(endpoints), nodes, arcs, overflow)
    name = C_IDS[batch.indices.dtype.name]

    def compute(items: Array, real: str, value_bytes: int) -> None:
        def memory(teams: Teams, nodes: int) -> int:
            # A sum and three masks a node, and of every source its paths and its level.
            lanes = teams.sources * (value_bytes + _level(teams)[1])
            return padded(nodes * (20 + lanes) + 4 * teams.sources)

        run(
            _BETWEENNESS_FILE,
            "betweenness",
            lambda teams: f"{name}, {real}, {_level(teams)[0]}, {teams.sources}",
            items,
            _TEAMS,
            memory,
            given,
            outputs,
            edges,
        )

    items = planned.items
    if np.dtype(dtype) == np.float32:
        compute(items, "float", 4)
        again = np.flatnonzero(overflow.get())
        items = items[np.isin(items["graph"], again)]
        for graph in again if edges else ():
            first, stop = (int(batch.indptr[int(node)]) for node in ptr[graph : graph + 2])
            arcs[first:stop] = 0
    compute(items, "double", 8)
    return summed(planned, nodes, batch.nodes), arcs if edges else None


def _level(teams: Teams) -> tuple[str, int]:
    """Return the C type of levels, of which one value means that a node was not reached."""
    if teams.nodes <= 255:
        return "unsigned char", 1
    return ("unsigned int", 4) if teams.anywhere else ("unsigned short", 2)
