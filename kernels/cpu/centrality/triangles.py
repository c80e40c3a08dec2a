"""Triangles: each is found once, from its node of the lowest degree.

Edges are directed towards the node of the higher degree (then the higher number), which leaves few
at each node, even of a hub: at most the root of twice the edges. For each such edge of a marked
node, the ends of the other node's edges are looked up among the marks.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
from numba import int64

from penstock.arrays import Array, frozen_view
from penstock.csr import offsets_of
from penstock.kernels.centrality_rules import GraphBatch, Triangles
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer
from penstock.threads import spread

_WORK = 1 << 22  # edges looked up by a thread at a time, about


def count_triangles(
    batch: GraphBatch, multiplicities: Array | None, threads: int | None
) -> Triangles:
    """Return closed walks of three steps, edges and mutual neighbours; see naive/centrality.py."""
    found = Triangles(*np.zeros((3, batch.nodes), np.int64))
    none = np.ones(0, np.int8)
    given = (
        frozen_view(batch.indptr),
        frozen_view(batch.indices),
        frozen_view(none if multiplicities is None else np.asarray(multiplicities, np.int8)),
    )
    counts = np.zeros(batch.nodes, np.int64)
    nodes = range(0, batch.nodes, max(1, min(1 << 18, batch.nodes // 64)))
    step = nodes.step

    def count(low: int) -> None:
        _count(*given, low, min(low + step, batch.nodes), counts, found.degree, found.mutual)

    spread(count, nodes, threads)
    starts = offsets_of(counts)
    ends = np.empty(int(starts[-1]), batch.indices.dtype)
    times = np.empty(len(ends) if multiplicities is not None else 0, np.int8)

    def direct(low: int) -> None:
        _direct(*given, low, min(low + step, batch.nodes), starts, ends, times)

    spread(direct, nodes, threads)
    # Counts of other nodes: each thread has its own, and returns them when it is done.
    idle: list[tuple[Array, Array]] = []
    all_of_them: list[Array] = []
    lock = Lock()

    def look_up(bounds: tuple[int, int]) -> None:
        with lock:
            if not idle:
                closed = found.closed if not all_of_them else np.zeros_like(found.closed)
                all_of_them.append(closed)
                idle.append((closed, np.zeros(batch.nodes, np.int8)))
            mine, marks = idle.pop()
        _look_up(starts, ends, times, *bounds, mine, marks)
        with lock:
            idle.append((mine, marks))

    spread(look_up, _cuts(starts, ends, counts), threads)
    closed = found.closed
    for each in all_of_them[1:]:
        closed += each
    closed *= 2  # in both directions
    return found


def _cuts(starts: Array, ends: Array, counts: Array) -> list[tuple[int, int]]:
    """Cut nodes into ranges with about equally many edges to look up."""
    work = np.concatenate([[0], np.cumsum(counts[ends], dtype=np.int64)])[starts]
    if work[-1] == 0:
        return []
    wanted = np.arange(_WORK, int(work[-1]) + _WORK, _WORK)
    bounds = np.unique(np.minimum(np.searchsorted(work, wanted), len(counts)))
    return list(zip([0, *bounds[:-1].tolist()], bounds.tolist(), strict=True))


@njit(cache=True)
def _is_higher(indptr: Array, node: int, other: int) -> bool:
    here, there = indptr[node + 1] - indptr[node], indptr[other + 1] - indptr[other]
    return here < there or (here == there and node < other)


@njit(cache=True, nogil=True)
def _count(
    indptr: Array,
    indices: Array,
    multiplicities: Array,
    low: int,
    high: int,
    counts: Array,
    degree: Array,
    mutual: Array,
) -> None:
    for node in range(low, high):
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if other == node:
                continue
            times = int64(multiplicities[edge]) if len(multiplicities) > 0 else 1
            degree[node] += times
            mutual[node] += times == 2
            counts[node] += _is_higher(indptr, node, other)


@njit(cache=True, nogil=True)
def _direct(
    indptr: Array,
    indices: Array,
    multiplicities: Array,
    low: int,
    high: int,
    starts: Array,
    ends: Array,
    times: Array,
) -> None:
    """Write the edges to nodes of higher degree."""
    for node in range(low, high):
        at = starts[node]
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if other != node and _is_higher(indptr, node, other):
                ends[at] = other
                if len(times) > 0:
                    times[at] = multiplicities[edge]
                at += 1


@njit(cache=True, nogil=True)
def _look_up(
    starts: Array,
    ends: Array,
    times: Array,
    low: int,
    high: int,
    closed: Array,
    marks: Array,
) -> None:
    """Add the triangles of the lowest nodes ``low .. high``; marks are 0 before and after."""
    marked, added, to = pointer(marks), pointer(closed), pointer(ends)
    several = len(times) > 0
    for node in range(low, high):
        begin, end = starts[node], starts[node + 1]
        if end - begin < 2:
            continue
        for edge in range(begin, end):
            marked[to[edge]] = times[edge] if several else 1
        all_of_node = 0
        for edge in range(begin, end):
            other = int64(to[edge])
            factor = int64(times[edge]) if several else 1
            together = 0
            for step in range(starts[other], starts[other + 1]):
                third = int64(to[step])
                found = factor * int64(marked[third])
                if several:
                    found *= int64(times[step])
                together += found
                added[third] += found
            added[other] += together
            all_of_node += together
        added[node] += all_of_node
        for edge in range(begin, end):
            marked[to[edge]] = 0
