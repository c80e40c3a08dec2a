"""Betweenness of one large graph on the GPU, from some sources; see searches.cu.

The kernels of unweighted.py give a graph to blocks, each with some of its sources, and memory for
every block. They are faster for graphs that four sources do not fill the GPU with: up to 2^23 nodes
and edges. Here memory holds 92 bytes per node besides the graph, and up to 32 for lists of nodes.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cuda.centrality.teams import NULL, incoming
from penstock.kernels.cuda.module import c_name, launch_blocks

LEAST_ITEMS = 1 << 23  # nodes and edges of a graph
_FILE = "centrality/searches"
_SOURCES, _THREADS, _UNSEEN = 4, 256, -1  # as in searches.cu
_FEW = 16  # a level is searched from its nodes if their edges are fewer than 1 / _FEW of all


def betweenness_of_one(
    batch: GraphBatch, sources: DeviceArray | None, *, endpoints: bool
) -> DeviceArray:
    """Return the sums of nodes, (nodes,) float64, of a batch of one graph without weights."""
    listed = np.arange(batch.nodes) if sources is None else np.sort(cp.asnumpy(sources))
    search, sums = _Search(batch, endpoints=endpoints), cp.zeros(batch.nodes)
    for first in range(0, len(listed), _SOURCES):
        search.add(listed[first : first + _SOURCES], sums)
    return sums


class _Search:
    """Searches from up to four sources at once; names as in searches.cu."""

    def __init__(self, batch: GraphBatch, *, endpoints: bool) -> None:
        self.out, self.into = (batch.indptr, batch.indices), incoming(batch)[:2]
        self.nodes, self.endpoints = batch.nodes, endpoints
        self.id = c_name(batch.indices)
        self.levels = cp.empty((batch.nodes, _SOURCES), np.int32)
        self.paths, self.shares = (cp.empty((batch.nodes, _SOURCES)) for _ in range(2))
        self.stamps = cp.empty(batch.nodes, np.int32)

    def add(self, sources: np.ndarray, sums: DeviceArray) -> None:
        """Add what the shortest paths from these sources give to ``sums``."""
        few, there = len(self.out[1]) // _FEW, cp.asarray(sources)
        each = cp.arange(len(sources))
        self.levels.fill(_UNSEEN)
        self.levels[:, len(sources) :] = _UNSEEN - 1  # no sources
        self.levels[there, each] = 0
        for values in (self.paths, self.shares, self.stamps):
            values.fill(0)
        self.paths[there, each] = 1
        totals = cp.zeros(_SOURCES + 1, np.uint64)  # nodes found, and the edges out of them
        before, edges = np.zeros(_SOURCES + 1, np.uint64), self._edges_out(there)
        lists: list[DeviceArray | None] = [there]
        level = 0
        while edges:
            level += 1
            rows = self._marked(lists[-1], level, edges) if edges < few else None
            self._run(
                "count_paths",
                rows,
                self.into,
                self.out[0],
                level,
                rows is not None,
                self.levels,
                self.paths,
                totals,
            )
            now = totals.get()
            edges, found = int(now[-1] - before[-1]), bool((now != before)[:-1].any())
            before = now
            if not found:
                level -= 1
                break
            lists.append(rows)
        for back in range(level, 0, -1):
            self._run(
                "share_back",
                lists[back],
                self.out,
                back,
                back == level,
                self.endpoints,
                self.levels,
                self.paths,
                self.shares,
                sums,
            )
        if self.endpoints:
            sums[there] += totals[: len(sources)].astype(np.float64)

    def _edges_out(self, nodes: DeviceArray) -> int:
        return int((self.out[0][nodes + 1] - self.out[0][nodes]).sum())

    def _marked(self, rows: DeviceArray | None, level: int, edges: int) -> DeviceArray:
        """Return the nodes of a level, which are marked: at most the edges of the level before."""
        if rows is None:
            at = self.levels == level - 1
            rows = cp.flatnonzero(at.view(np.uint32))
        found, size = cp.empty(min(edges, self.nodes), np.int64), cp.zeros(1, np.uint64)
        self._run("mark", rows, self.out, level, self.levels, self.stamps, found, size)
        return found[: int(size[0])]

    def _run(
        self, kernel: str, rows: DeviceArray | None, graph: tuple[Any, Any], *given: object
    ) -> None:
        """Launch a kernel for some nodes, or all, with a thread of a block for each."""
        count = self.nodes if rows is None else len(rows)
        if count == 0:
            return
        launch_blocks(
            _FILE,
            f"{kernel}<{self.id}>",
            min(-(-count // _THREADS), 1 << 30),
            _THREADS,
            *(np.int64(count), NULL if rows is None else rows, *graph),
            *(np.int32(one) if type(one) is int else one for one in given),
        )
