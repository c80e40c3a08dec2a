"""PageRank of one graph, given as consecutive row ranges, which may be mapped files.

    ranks, steps = pagerank(rows, directed=False)

centrality.py has PageRank of many small graphs at once, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.ranks import Ranks


def pagerank(
    rows: Sequence[CSR],
    *,
    directed: bool,
    weighted: bool = False,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    most: int = 100,
    start: Array | None = None,
    personal: Array | None = None,
    dangling: Array | None = None,
    dtype: Any = np.float64,
    folder: Path | None = None,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> tuple[Array, int]:
    """Return PageRank, (nodes,) float64, and the number of steps, or -1 if ``most`` are too few.

    directed  False: every edge is stored at both ends, with equal weights
    weighted  use the weights of ``rows``; parallel edges add up
    start     (nodes,) float64 values to begin with, which add up to 1 [default: equal]
    personal  (nodes,) float64, adding up to 1: where a walk begins again [default: equal]
    dangling  (nodes,) float64, adding up to 1: to which a node without edges, or with weights of
              zero only, gives [default: as ``personal``]
    dtype     of what nodes give by weight of an out-edge, float32 or float64; sums are float64
    folder    for the in-edges of a directed graph that exceeds memory [default: in memory]
    threads   [default: all cores]; they do not change the result
    ranks     which compute it together, each with these arguments, and all get the result, which
              they do not change

    It has converged if a step changes it by less than ``tolerance`` per node.
    """
    nodes = sum(each.rows for each in rows)
    matrix = np.zeros((nodes, nodes))
    for each in rows:
        weights = each.weights if weighted and each.weights is not None else np.ones(each.edges)
        np.add.at(matrix, (each.sources(), each.indices), weights)
    if nodes == 0:
        return np.zeros(0), 1
    even = np.full(nodes, 1 / nodes)
    personal = even if personal is None else personal
    dangling = personal if dangling is None else dangling
    sums = matrix.sum(1)
    x = even if start is None else start
    for step in range(1, most + 1):
        gives = np.divide(x, sums, out=np.zeros(nodes), where=sums > 0).astype(dtype)
        come = gives.astype(np.float64) @ matrix + x[sums == 0].sum() * dangling
        before, x = x, damping * come + (1 - damping) * personal
        if np.abs(x - before).sum() < nodes * tolerance:
            return x, step
    return x, -1
