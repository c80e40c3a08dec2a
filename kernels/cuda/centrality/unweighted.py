"""Unweighted paths of a batch on the GPU: how large a team each graph gets, and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.items import Items, by_size, plan_items
from penstock.kernels.cuda.module import launch_blocks

_WORD = 64  # sources of a breadth-first search
_BUSY = 8  # items a multiprocessor
_WARPS = 8  # graphs of a block that a warp each takes
_NOTHING = np.uint64(0)
_C_IDS = {"int32": "int", "int64": "long long"}


@dataclass(frozen=True)
class Teams:
    """How graphs of up to ``nodes`` nodes are computed.

    threads  of the block; 0: a warp a graph
    sources  at once, of a betweenness: a lane each
    level    C type of levels, and its bytes
    """

    nodes: int
    threads: int
    sources: int
    level: str = "unsigned short"
    level_bytes: int = 2

    def betweenness_bytes(self, value_bytes: int, nodes: int) -> int:
        """Return the memory of a graph: sums, paths, reach and levels."""
        lanes = self.sources * (value_bytes + self.level_bytes)
        return -(-(nodes * (8 + lanes) + 4 * self.sources) // 16) * 16


_BYTE = ("unsigned char", 1)  # levels of up to 255 nodes
_TEAMS = (
    Teams(8, 0, 8, *_BYTE),
    Teams(32, 0, 32, *_BYTE),
    Teams(64, 128, 32, *_BYTE),
    Teams(128, 256, 32, *_BYTE),
    Teams(255, 512, 32, *_BYTE),
    Teams(512, 512, 16),
    Teams(1024, 1024, 16),
    Teams(1 << 15, 1024, 8),
)
_LARGEST = Teams(1 << 31, 1024, 32, "unsigned int", 4)


def unweighted_paths(batch: GraphBatch, sources: DeviceArray | None) -> Paths:
    """Return what the shortest paths from ``sources`` come to."""
    return _search(batch, sources, None, None)


def unweighted_distances(batch: GraphBatch) -> DeviceArray:
    """Return the distances of all pairs, a square matrix a graph, -1 where there is no path."""
    sizes = np.diff(cp.asnumpy(batch.ptr))
    starts = np.concatenate([[0], np.cumsum(sizes**2)])
    distances = cp.full(int(starts[-1]), -1, cp.int32)
    _search(batch, None, distances, cp.asarray(starts))
    return distances


def unweighted_betweenness(
    batch: GraphBatch,
    sources: DeviceArray | None,
    *,
    endpoints: bool,
    edges: bool,
    dtype: Any,
) -> tuple[DeviceArray, DeviceArray | None]:
    """Return the sums of nodes, and of edges if asked; see naive/centrality.py."""
    ptr, source_starts, listed = _sources(batch, sources)
    wanted = 1 if edges else _BUSY * _processors()  # an edge's sum has one writer
    planned = plan_items(ptr, source_starts, 32, wanted)
    nodes = cp.empty(planned.slots)
    arcs = cp.zeros(len(batch.indices) if edges else 0)
    overflow = cp.zeros(max(batch.graphs, 1), cp.uint8)
    into = _incoming(batch)
    more = (listed, bool(endpoints), nodes, arcs, overflow)
    items = planned.items
    if np.dtype(dtype) == np.float32:
        _run_betweenness("float", 4, batch, into, items, edges, more)
        again = overflow.get()[items["graph"]] > 0
        items = items[again]
        for graph in np.unique(items["graph"]) if edges else ():
            first, stop = (int(batch.indptr[node]) for node in ptr[graph : graph + 2])
            arcs[first:stop] = 0
    _run_betweenness("double", 8, batch, into, items, edges, more)
    return _folded(planned, nodes, batch.nodes), arcs if edges else None


def _run_betweenness(
    real: str,
    value_bytes: int,
    batch: GraphBatch,
    into: tuple[DeviceArray, DeviceArray],
    items: Array,
    edges: bool,
    more: tuple[Any, ...],
) -> None:
    room = _shared_bytes()
    fits = tuple(
        teams
        for teams in _TEAMS
        if teams.threads == 0 or teams.betweenness_bytes(value_bytes, teams.nodes) <= room
    )
    last = _TEAMS[-1]
    if last not in fits:  # as many nodes as fit
        most = (room - 64) // (8 + last.sources * (value_bytes + last.level_bytes))
        fits = (*fits, Teams(most, last.threads, last.sources))
    for number, chosen in by_size(items, tuple(teams.nodes for teams in fits)):
        teams = fits[number] if number < len(fits) else _LARGEST
        size = teams.betweenness_bytes(value_bytes, int(chosen["nodes"].max()))
        kind = f"{_C_IDS[batch.indices.dtype.name]}, {real}, {teams.level}, {teams.sources}"
        graphs = (*into, batch.indptr, batch.indices)
        listed, *outputs = more
        _launch("betweenness", kind, edges, teams, chosen, size, (*graphs, listed), tuple(outputs))


def _search(
    batch: GraphBatch,
    sources: DeviceArray | None,
    distances: DeviceArray | None,
    starts: DeviceArray | None,
) -> Paths:
    ptr, source_starts, listed = _sources(batch, sources)
    planned = plan_items(ptr, source_starts, _WORD, _BUSY * _processors())
    reached = cp.empty(planned.slots, cp.int64)
    total, inverse = cp.empty(planned.slots), cp.empty(planned.slots)
    of_sources = cp.empty(len(listed))
    room = _shared_bytes()
    bounds = tuple(teams.nodes for teams in _TEAMS if _search_bytes(teams.nodes) <= room)
    bounds = (*bounds, (room - 32) // _search_bytes(1, head=0))
    for number, chosen in by_size(planned.items, bounds):
        teams = _TEAMS[number] if number < len(bounds) else _LARGEST
        size = _search_bytes(int(chosen["nodes"].max()))
        outputs = (
            *(reached, total, inverse, of_sources),
            *(_NOTHING if each is None else each for each in (distances, starts)),
        )
        graphs = (*_incoming(batch), listed)
        kind = _C_IDS[batch.indices.dtype.name]
        _launch("breadth_first", kind, None, teams, chosen, size, graphs, outputs)
    eccentricity = cp.zeros(batch.nodes)
    eccentricity[listed] = of_sources
    return Paths(*(_folded(planned, each, batch.nodes) for each in (reached, total, inverse)),
                 eccentricity)  # fmt: skip


def _search_bytes(nodes: int, head: int = 16) -> int:
    """Return the memory of a graph: two sums, three words and a count a node, and two words."""
    return -(-(nodes * 44 + head) // 16) * 16


def _launch(
    file: str,
    kind: str,
    edges: bool | None,
    teams: Teams,
    items: Array,
    size: int,
    graphs: tuple[Any, ...],
    outputs: tuple[Any, ...],
) -> None:
    """Run a kernel over items of one size class; what does not fit in a block is in scratch."""
    warp = teams.threads == 0
    everywhere = teams is _LARGEST
    blocks = -(-len(items) // _WARPS) if warp else len(items)
    scratch: Any = _NOTHING
    if everywhere:
        blocks = min(blocks, _processors())
        scratch = cp.empty(blocks * size, cp.uint8)
    flags = [warp, everywhere, *([] if edges is None else [edges])]
    words = ", ".join("true" if flag else "false" for flag in flags)
    given = cp.asarray(items.view(np.uint8))
    launch_blocks(
        f"centrality/{file}",
        f"{file}<{kind}, {words}>",
        blocks,
        32 * _WARPS if warp else teams.threads,
        *(given, np.int64(len(items)), *graphs, scratch, np.int64(size), *outputs),
        shared=0 if everywhere else size * (_WARPS if warp else 1),
    )


def _folded(planned: Items, values: DeviceArray, nodes: int) -> DeviceArray:
    """Return a value a node: the sum of those that several items have, in their order."""
    found = values[:nodes]
    for owners, slots in planned.parts:
        found[cp.asarray(owners)] += values[cp.asarray(slots)]
    return found


def _sources(batch: GraphBatch, sources: DeviceArray | None) -> tuple[Array, Array, DeviceArray]:
    """Return on the host where graphs and their sources begin, and the sources in order."""
    ptr = cp.asnumpy(batch.ptr)
    if sources is None:
        return ptr, ptr, cp.arange(batch.nodes, dtype=cp.int64)
    listed = cp.sort(cp.asarray(sources, cp.int64))
    return ptr, cp.asnumpy(cp.searchsorted(listed, cp.asarray(batch.ptr))), listed


def _incoming(batch: GraphBatch) -> tuple[DeviceArray, DeviceArray]:
    """Return the edges into each node: those out of it where every edge is there both ways."""
    if not batch.directed:
        return batch.indptr, batch.indices
    rows = cp.repeat(cp.arange(batch.nodes, dtype=batch.indices.dtype), cp.diff(batch.indptr).get())
    indptr = cp.zeros(batch.nodes + 1, cp.int64)
    indptr[1:] = cp.cumsum(cp.bincount(batch.indices, minlength=batch.nodes))
    return indptr, rows[cp.argsort(batch.indices, kind="stable")]


def _shared_bytes() -> int:
    return int(cp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def _processors() -> int:
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])
