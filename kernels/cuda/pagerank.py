"""PageRank of one graph on the GPU; meaning as in naive/pagerank.py.

A step reads every edge once (4 or 8 bytes, and its weight), and gathers 8 bytes per edge, of which
a sector of 32 comes from memory if no cache has it. Besides the graph, memory holds up to 60 bytes
per node, and of a directed graph the in-edges, whose making takes 16 bytes per edge (40 with
weights).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.csr import CSR
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.cuda.transpose import transpose

_FILE = "pagerank"
_NULL = np.uint64(0)
_THREADS = 256
_ITEMS = 7 * _THREADS  # edges and row ends of a block, as in pagerank.cu
_BLOCKS = 1024  # at most, that finish a step: the order of sums must not depend on the GPU
_WEIGHTS = {None: "None", "float32": "float", "float64": "double"}


def pagerank(
    rows: Sequence[CSR],
    *,
    directed: bool,
    weighted: bool = False,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    most: int = 100,
    start: DeviceArray | None = None,
    personal: DeviceArray | None = None,
    dangling: DeviceArray | None = None,
    folder: Path | None = None,
    threads: int | None = None,
) -> tuple[DeviceArray, int]:
    """Return PageRank, (nodes,) float64, and the number of steps, or -1 if ``most`` are too few.

    rows  one range; ``folder`` and ``threads`` have no effect
    """
    if not rows or not rows[0].rows:
        return cp.zeros(0), 1
    (out,) = rows
    nodes = out.rows
    weighted = weighted and out.weights is not None
    into = transpose(rows, weighted=weighted)[0] if directed else out
    sums = cp.diff(out.indptr).astype(np.float64)
    if weighted:  # a step in which each edge gives its weight, and nothing is added
        found, ones = cp.zeros(nodes), cp.ones(nodes)
        _Steps(out, ones, None, None, 1.0, weighted=True).run(ones, found, cp.empty(nodes))
        sums = found
    x = cp.full(nodes, 1 / nodes) if start is None else cp.array(start, np.float64)
    gives, then = cp.where(sums > 0, x / cp.where(sums > 0, sums, 1), 0), cp.empty(nodes)
    dangling = personal if dangling is None else dangling
    steps = _Steps(into, sums, personal, dangling, damping, weighted=weighted)
    steps.totals[1] = cp.where(sums > 0, 0, x).sum()
    for step in range(1, most + 1):
        if steps.run(gives, x, then) < nodes * tolerance:
            return x, step
        gives, then = then, gives
    return x, -1


class _Steps:
    """Steps over the rows of a graph; arguments as in pagerank.cu."""

    def __init__(
        self,
        rows: CSR,
        sums: DeviceArray,
        personal: DeviceArray | None,
        dangling: DeviceArray | None,
        damping: float,
        *,
        weighted: bool,
    ) -> None:
        self.rows, self.weights, self.damping = rows, rows.weights if weighted else None, damping
        self.vectors = sums, *(_NULL if each is None else each for each in (personal, dangling))
        nodes, edges = np.int64(rows.rows), np.int64(rows.edges)
        self.tiles = int(-(-(nodes + edges) // _ITEMS))
        self.totals = cp.zeros(2)
        self.starts = cp.empty(self.tiles + 1, np.int64)
        launch(
            _FILE,
            "cut_rows",
            self.tiles + 1,
            np.int64(self.tiles),
            nodes,
            edges,
            rows.indptr,
            self.starts,
        )
        self.firsts, self.carries = cp.empty(self.tiles), cp.empty(self.tiles)
        self.parts = cp.empty(2 * self.tiles)
        self.blocks = min(-(-self.tiles * 32 // _THREADS), _BLOCKS)
        self.of_blocks = cp.empty(2 * self.blocks)

    def run(self, gives: DeviceArray, x: DeviceArray, then: DeviceArray) -> float:
        """Compute ``x``, and what its nodes give ``then``; return the sum of the changes."""
        rows, weights = self.rows, self.weights
        name = _WEIGHTS[None if weights is None else weights.dtype.name]
        nodes, tiles = np.int64(rows.rows), np.int64(self.tiles)
        given: tuple[Any, ...] = (*self.vectors, self.totals, np.float64(self.damping), x, then)
        left = self.firsts, self.carries, self.parts
        launch_blocks(
            _FILE,
            f"pull<{c_name(rows.indices)}, {name}>",
            self.tiles,
            _THREADS,
            *(nodes, np.int64(rows.edges), rows.indptr, rows.indices),
            *(_NULL if weights is None else weights, self.starts, gives, *given, *left),
        )
        launch_blocks(
            _FILE,
            "finish_rows",
            self.blocks,
            _THREADS,
            *(tiles, nodes, rows.indptr, self.starts, *given, *left, self.of_blocks),
        )
        count = np.int32(self.blocks)
        launch_blocks(_FILE, "add_parts", 1, _THREADS, count, self.of_blocks, self.totals)
        return float(self.totals[0])
