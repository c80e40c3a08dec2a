"""Shortest paths of one large graph without weights on the GPU; see words.cu.

The kernels of unweighted.py give a graph to blocks, each with 64 of its sources, and memory for
every block: they are for graphs up to LEAST_ITEMS. Here memory holds 140 bytes per node besides the
graph.
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.teams import NULL, incoming
from penstock.kernels.cuda.module import c_name, launch, launch_blocks

LEAST_ITEMS = 1 << 22  # nodes and edges of a graph
_FILE = "centrality/words"
_WORDS, _THREADS = 4, 256  # as in words.cu
_SOURCES = 64 * _WORDS
_FEW = 16  # a level is searched from its nodes if their edges are fewer than 1 / _FEW of all


def paths_of_one(batch: GraphBatch, sources: DeviceArray | None) -> Paths:
    """Return the results of the shortest paths from ``sources`` of a batch of one graph."""
    listed = np.arange(batch.nodes) if sources is None else np.sort(cp.asnumpy(sources))
    search = _Search(batch)
    farthest = np.zeros(len(listed))
    for first in range(0, len(listed), _SOURCES):
        some = listed[first : first + _SOURCES]
        farthest[first : first + len(some)] = search.add(some)
    eccentricity = cp.zeros(batch.nodes)
    eccentricity[cp.asarray(listed)] = cp.asarray(farthest)
    return Paths(search.reached, search.total, search.inverse, eccentricity)


class _Search:
    """Searches from up to 256 sources at once; names as in words.cu."""

    def __init__(self, batch: GraphBatch) -> None:
        self.out, self.into = (batch.indptr, batch.indices), incoming(batch)[:2]
        self.nodes, self.id = batch.nodes, c_name(batch.indices)
        shape = batch.nodes, _WORDS
        self.seen, self.now, self.then = (cp.empty(shape, np.uint64) for _ in range(3))
        self.stamps = cp.empty(batch.nodes, np.int32)
        self.reached = cp.zeros(batch.nodes, np.int64)
        self.total, self.inverse = cp.zeros(batch.nodes), cp.zeros(batch.nodes)

    def add(self, sources: Array) -> Array:
        """Add the paths from these sources to the sums; return the largest distance of each."""
        few, rows = len(self.out[1]) // _FEW, cp.asarray(sources)
        each = np.arange(len(sources))
        for values in (self.seen, self.now, self.then, self.stamps):
            values.fill(0)
        bits = cp.asarray(np.uint64(1) << (each % 64).astype(np.uint64))
        for values in (self.seen, self.now):
            values[rows, cp.asarray(each // 64)] = bits
        edges = int((self.out[0][rows + 1] - self.out[0][rows]).sum())
        farthest, level = np.zeros(len(sources)), 0
        listed: DeviceArray | None = rows
        while edges:
            level += 1
            if edges < few:
                if listed is None:
                    listed = cp.flatnonzero((self.now != 0).any(1))
                then = self._push(listed, level, edges)
                self.now[listed] = 0
                listed = then
            else:
                width = np.int32(len(sources))
                self._run("pull", self.nodes, *self.into, width, self.now, self.seen, self.then)
                self.now.fill(0)
                listed = None
            flags = cp.zeros(_WORDS + 1, np.uint64)
            count = self.nodes if listed is None else len(listed)
            which = NULL if listed is None else listed
            given = np.int64(count), which, self.out[0], np.int32(level), self.then, self.seen
            sums = self.reached, self.total, self.inverse
            launch(_FILE, "settle", count, *given, *sums, flags)
            self.now, self.then = self.then, self.now
            *found, edges = flags.get().tolist()
            farthest[_chosen(found, len(sources))] = level
        flags = cp.full(_WORDS, ~np.uint64(0))
        launch(_FILE, "in_all", self.nodes, np.int64(self.nodes), self.seen, flags)
        farthest[~_chosen(flags.get().tolist(), len(sources))] = np.inf
        return farthest

    def _push(self, rows: DeviceArray, level: int, edges: int) -> DeviceArray:
        """Return the nodes that are reached from those of the last level."""
        found, size = cp.empty(min(edges, self.nodes), np.int64), cp.zeros(1, np.uint64)
        given = np.int32(level), self.now, self.seen, self.then, self.stamps, found, size
        self._run("push", len(rows), rows, *self.out, *given)
        return found[: int(size[0])]

    def _run(self, kernel: str, count: int, *given: object) -> None:
        blocks = min(-(-count // _THREADS), 1 << 30)
        launch_blocks(_FILE, f"{kernel}<{self.id}>", blocks, _THREADS, np.int64(count), *given)


def _chosen(words: list[int], count: int) -> Array:
    """Return for each source whether its bit is set."""
    bits = np.unpackbits(np.array(words, np.uint64).view(np.uint8), bitorder="little")
    return bits[:count].astype(bool)
