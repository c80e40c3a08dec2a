"""Unweighted paths of a batch on the GPU: breadth-first searches and Brandes' betweenness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.items import by_size, plan_items
from penstock.kernels.cuda.centrality.teams import (
    NULL,
    Teams,
    busy,
    incoming,
    launch_teams,
    padded,
    run,
    shared_memory,
    sources_of,
    summed,
    that_fit,
    words,
)
from penstock.kernels.cuda.module import c_name
from penstock.kernels.cuda.uploads import to_gpu

_SEARCH_FILE = "centrality/breadth_first"
_BETWEENNESS_FILE = "centrality/betweenness"
_QUEUE_FILE = "centrality/brandes"
_WORD = 64  # sources of a breadth-first search
_SEARCH_TEAMS = (
    Teams(32, 0, _WORD),
    Teams(64, 128, _WORD),
    Teams(128, 256, _WORD),
    Teams(512, 512, _WORD),
    Teams(1 << 15, 1024, _WORD),
)
_TEAMS = (
    Teams(32, 0, 32),
    Teams(64, 64, 32),
    Teams(128, 128, 32),
    Teams(256, 256, 32),
    Teams(512, 512, 32),
    Teams(1024, 1024, 32),
    Teams(1 << 15, 1024, 16),
)
_LANES = 32  # the most sources that a team takes at once


@dataclass(frozen=True)
class _Numbers:
    """The number types of betweenness: of paths, and of shares (1 + dependency) / paths.

    bytes  of a count
    """

    count: str
    share: str
    bytes: int

    def sources(self, teams: Teams) -> int:
        """Return a team's number of sources: the counts that fit into a row of 128 bytes."""
        return teams.sources // (1 if teams.anywhere else self.bytes // 4)

    def row_bytes(self, teams: Teams) -> int:
        return self.sources(teams) * self.bytes

    def memory(self, teams: Teams, nodes: int) -> int:
        # A sum and a place per node; the value and level of every source; a row of no node.
        row, sources = self.row_bytes(teams), self.sources(teams)
        rest = (4 + 4 * sources) if teams.anywhere else (2 + sources)
        return padded(nodes * (8 + row + rest) + row + 4 * sources)


_SINGLE = _Numbers("float", "float", 4)
_MIXED = _Numbers("float", "double", 4)  # with counts below 2^24, which are exact
_DOUBLE = _Numbers("double", "double", 8)

# Sparse graphs have many levels, and each takes a pass over nodes: they are searched with a queue,
# one source at a time.
_MANY = 4  # edges per node from which graphs are not sparse
_QUEUED = (Teams(64, 0, 1), Teams(512, 64, 1), Teams(1 << 16, 128, 1))
_QUEUED_BYTES = (19, 528)  # per node, and constant
_GROUP = 4  # lanes per node


def unweighted_paths(batch: GraphBatch, sources: DeviceArray | None) -> Paths:
    """Return the results of the shortest paths from ``sources``."""
    return _search(batch, sources, NULL, NULL)


def unweighted_distances(batch: GraphBatch) -> DeviceArray:
    """Return the distances of all pairs, one square matrix per graph, -1 if there is no path."""
    sizes = np.diff(cp.asnumpy(batch.ptr))
    starts = np.concatenate([[0], np.cumsum(sizes**2)])
    distances = cp.full(int(starts[-1]), -1, cp.int32)
    _search(batch, None, distances, to_gpu(starts))
    return distances


def _search(batch: GraphBatch, sources: DeviceArray | None, distances: Any, starts: Any) -> Paths:
    ptr, source_starts, listed = sources_of(batch, sources)
    planned = plan_items(ptr, source_starts, _WORD, busy(batch))
    reached = cp.empty(planned.slots, cp.int64)
    total, inverse = cp.empty(planned.slots), cp.empty(planned.slots)
    farthest = cp.empty(len(listed))
    name = c_name(batch.indices)
    run(
        _SEARCH_FILE,
        "breadth_first",
        lambda teams: name,
        planned.items,
        _SEARCH_TEAMS,
        # Two sums, three words and a count per node, and two words.
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
    """Return the sums of nodes, and of edges if requested; see naive/centrality.py."""
    ptr, source_starts, listed = sources_of(batch, sources)
    # An edge's sum has one writer, so then a graph is one item.
    planned = plan_items(ptr, source_starts, _LANES, 1 if edges else busy(batch))
    nodes = cp.empty(planned.slots)
    arcs = cp.zeros(len(batch.indices) if edges else 0)
    failed = cp.zeros(max(batch.graphs, 1), cp.uint8)
    outputs = (bool(endpoints), nodes, arcs, failed)
    name = c_name(batch.indices)

    def left(items: Array) -> Array:
        again = np.flatnonzero(failed.get())
        failed.fill(0)
        for graph in again if edges else ():
            first, stop = (int(batch.indptr[int(node)]) for node in ptr[graph : graph + 2])
            arcs[first:stop] = 0
        return items[np.isin(items["graph"], again)]

    items = planned.items
    if len(batch.indices) < _MANY * batch.nodes:
        fits = _QUEUED_BYTES[0] * items["nodes"].astype(np.int64) + _QUEUED_BYTES[1]
        queued = items[fits <= shared_memory()]
        for number, chosen in by_size(queued, tuple(teams.nodes for teams in _QUEUED)):
            teams = _QUEUED[number]
            launch_teams(
                _QUEUE_FILE,
                f"brandes<{name}, {_GROUP}, {words(not teams.threads, edges)}>",
                chosen,
                teams,
                padded(_QUEUED_BYTES[0] * int(chosen["nodes"].max()) + _QUEUED_BYTES[1]),
                (batch.indptr, batch.indices, listed),
                outputs,
            )
        items = np.concatenate([items[fits > shared_memory()], left(queued)])
        if len(items) == 0:
            return summed(planned, nodes, batch.nodes), arcs if edges else None
    given = (*incoming(batch)[:2], batch.indptr, batch.indices, listed)

    def compute(items: Array, numbers: _Numbers, classes: tuple[Teams, ...]) -> None:
        def arguments(teams: Teams) -> str:
            level = "unsigned int" if teams.anywhere else "unsigned char"
            return f"{name}, {numbers.count}, {numbers.share}, {level}, {numbers.sources(teams)}"

        run(
            _BETWEENNESS_FILE,
            "betweenness",
            arguments,
            items,
            classes,
            numbers.memory,
            given,
            outputs,
            edges,
            stash=lambda teams, nodes: padded(nodes * numbers.row_bytes(teams)),
        )

    if np.dtype(dtype) == np.float32:
        compute(items, _SINGLE, _TEAMS)
        items = left(items)
    else:
        # Larger graphs overflow a float's path counts too often to try.
        small = items["nodes"] <= that_fit(_TEAMS, _MIXED.memory)[-1].nodes
        compute(items[small], _MIXED, _TEAMS)
        items = np.concatenate([items[~small], left(items[small])])
    compute(items, _DOUBLE, _TEAMS)
    compute(left(items), _DOUBLE, ())
    for graph in np.flatnonzero(failed.get()):  # more paths than a float64 counts, as on the CPU
        first, stop = (int(node) for node in ptr[graph : graph + 2])
        nodes[first:stop] = np.nan
        if edges:
            arcs[int(batch.indptr[first]) : int(batch.indptr[stop])] = np.nan
    return summed(planned, nodes, batch.nodes), arcs if edges else None
