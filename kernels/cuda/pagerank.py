"""PageRank of one graph on the GPU; meaning as in naive/pagerank.py.

A step reads every edge once (4 or 8 bytes, and its weight), and gathers 8 bytes per edge (float32:
4), of which a sector of 32 comes from memory if no cache has it. Besides the graph, memory holds up
to 60 bytes per node, and of a directed graph the in-edges, whose making takes 16 bytes per edge (40
with weights). Several ranks exchange what they gather; each has its edges, or in-edges, only.
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
from penstock.kernels.cuda.pagerank_edges import THREADS, indices_of, tiles_of
from penstock.kernels.cuda.transpose import transpose
from penstock.kernels.ranks import Ranks, cuts, gather, share

_FILE = "pagerank"
_BLOCKS = 1024  # at most, that add up parts: the order of sums must not depend on the GPU


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
    dtype: Any = np.float64,
    folder: Path | None = None,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> tuple[DeviceArray, int]:
    """Return PageRank, (nodes,) float64, and the number of steps, or -1 if ``most`` are too few.

    rows  one range, of a rank with its edges only, unless the graph is directed; ``folder`` and
          ``threads`` have no effect
    """
    if not rows or not rows[0].rows:
        return cp.zeros(0), 1
    (out,) = rows
    nodes = out.rows
    weighted = weighted and out.weights is not None
    into = transpose(rows, weighted=weighted, ranks=ranks)[0] if directed else out
    sums = cp.diff(out.indptr).astype(np.float64)
    if weighted:  # a step in which each edge gives its weight, and nothing is added
        ones, sums = cp.ones(nodes), cp.empty(nodes)
        _Steps(out, ones, None, None, 1.0, True, ranks).run(ones, cp.empty(nodes), sums)
    x = cp.full(nodes, 1 / nodes) if start is None else cp.array(start, np.float64)
    gives = cp.where(sums > 0, x / cp.where(sums > 0, sums, 1), 0).astype(dtype)
    then = cp.empty(nodes, dtype)
    dangling = personal if dangling is None else dangling
    work = _Steps(into, sums, personal, dangling, damping, weighted, ranks)
    work.totals[1] = cp.where(sums > 0, 0, x).sum()
    steps = -1
    for step in range(1, most + 1):
        if work.run(gives, x, then) < nodes * tolerance:
            steps = step
            break
        gives, then = then, gives
    gather(x, work.rows_of, ranks)
    return x, steps


class _Steps:
    """Steps over the rows of a graph; arguments as in pagerank.cu."""

    def __init__(
        self,
        rows: CSR,
        sums: DeviceArray,
        personal: DeviceArray | None,
        dangling: DeviceArray | None,
        damping: float,
        weighted: bool,
        ranks: Ranks | None,
    ) -> None:
        self.rows, self.weights, self.damping = rows, rows.weights if weighted else None, damping
        self.ranks = ranks
        self.vectors = sums, personal, dangling
        self.totals = cp.zeros(2)
        self.edges, self.tiles, self.starts = tiles_of(rows.indptr)
        self.cuts = cuts(self.tiles, ranks)
        self.rows_of = [int(self.starts[tile]) for tile in self.cuts]
        self.firsts, self.carries = cp.empty(self.tiles), cp.empty(self.tiles)
        self.parts = cp.empty((self.tiles, 2))
        self.of_blocks = cp.empty((min(-(-self.tiles // THREADS), _BLOCKS), 2))

    def run(self, gives: DeviceArray, x: DeviceArray, then: DeviceArray) -> float:
        """Compute ``x`` of the rows of this rank, and what all nodes give ``then``; return the sum
        of the changes."""
        rows, weights, ranks = self.rows, self.weights, self.ranks
        value = c_name(gives)
        types = c_name(rows.indices), "None" if weights is None else c_name(weights), value
        low, high = share(self.cuts, ranks)
        nodes, first, last = np.int64(rows.rows), np.int64(low), np.int64(high)
        given: tuple[Any, ...] = (*self.vectors, self.totals, np.float64(self.damping), x, then)
        left = self.firsts, self.carries, self.parts
        if high > low:
            launch_blocks(
                _FILE,
                f"pull<{', '.join(types)}>",
                high - low,
                THREADS,
                *(first, nodes, np.int64(self.edges), rows.indptr, indices_of(rows)[0]),
                None if weights is None else indices_of(rows, "weights")[0],
                *(self.starts, gives, *given, *left),
            )
        gather(self.carries, self.cuts, ranks)
        launch(
            _FILE,
            f"finish_rows<{value}>",
            32 * (high - low),
            *(first, last, nodes, rows.indptr, self.starts, *given, *left),
        )
        gather(then, self.rows_of, ranks)
        gather(self.parts, self.cuts, ranks)
        blocks, count = len(self.of_blocks), np.int64(self.tiles)
        launch_blocks(_FILE, "add_parts", blocks, THREADS, count, self.parts, self.of_blocks)
        of_blocks = np.int64(blocks), self.of_blocks
        launch_blocks(_FILE, "add_parts", 1, THREADS, *of_blocks, self.totals)
        if ranks is not None:
            ranks.synchronize()
        return float(self.totals[0])
