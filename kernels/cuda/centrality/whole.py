"""PageRank of many graphs on the GPU, a block each (cuda/pagerank.py is of one), and triangles."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Triangles
from penstock.kernels.cuda.centrality.items import plan_items
from penstock.kernels.cuda.centrality.teams import NULL, Teams, incoming, padded, run
from penstock.kernels.cuda.module import c_name, launch_blocks

_FILE = "centrality/pagerank"
_TEAMS = (Teams(32, 0, 1), Teams(128, 128, 1), Teams(512, 512, 1), Teams(1 << 15, 1024, 1))
_THREADS = 256  # of a block, as in rows.cuh


def pagerank(
    batch: GraphBatch, damping: float, tolerance: float, most: int
) -> tuple[DeviceArray, DeviceArray]:
    """Return ranks and numbers of steps; see naive/centrality.py."""
    ptr = cp.asnumpy(batch.ptr)
    ranks, steps = cp.empty(batch.nodes), cp.empty(batch.graphs, cp.int32)
    indptr, indices, weights = incoming(batch)
    weighted = batch.weights is not None
    name = f"{c_name(batch.indices)}, {str(weighted).lower()}"
    given = (indptr, indices, weights if weighted else NULL, batch.indptr)
    run(
        _FILE,
        "pagerank",
        lambda teams: name,
        plan_items(ptr, ptr, max(batch.nodes, 1), 1).items,
        _TEAMS,
        # Three numbers per node, and one per warp.
        lambda teams, nodes: padded(24 * nodes + 256),
        (*given, batch.weights if weighted else NULL),
        (damping, tolerance, np.int32(most), ranks, steps),
    )
    return ranks, steps


def triangles(batch: GraphBatch, multiplicities: DeviceArray | None) -> Triangles:
    """Return closed walks of three steps, edges and mutual neighbours; see naive/centrality.py."""
    found = Triangles(*(cp.zeros(batch.nodes, cp.int64) for _ in range(3)))
    several = multiplicities is not None
    rows = (batch.indptr, batch.indices, multiplicities if several else NULL)

    def over_nodes(kernel: str, *arguments: Any) -> None:
        if batch.nodes:
            name = f"{kernel}<{c_name(batch.indices)}, {str(several).lower()}>"
            blocks = min(-(-batch.nodes // _THREADS), 1 << 30)
            count = np.int64(batch.nodes)
            launch_blocks("centrality/triangles", name, blocks, _THREADS, count, *arguments)

    counts = cp.zeros(batch.nodes + 1, cp.int64)
    over_nodes("count_higher", *rows, counts[1:], found.degree, found.mutual)
    starts = cp.cumsum(counts)
    ends = cp.empty(int(starts[-1]), batch.indices.dtype)
    times = cp.empty(len(ends), cp.int8) if several else NULL
    over_nodes("direct", *rows, starts, ends, times)
    over_nodes("add_triangles", starts, ends, times, found.closed)
    found.closed[...] *= 2  # in both directions
    return found
