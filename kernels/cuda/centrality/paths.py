"""What a search for shortest paths on the GPU writes, whether edges have weights or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.kernels.centrality_rules import GraphBatch, Paths
from penstock.kernels.cuda.centrality.items import plan_items
from penstock.kernels.cuda.centrality.teams import NULL, busy, sources_of, summed
from penstock.kernels.cuda.uploads import to_gpu

# Launches a search: items, the listed sources, and the arrays that it writes.
Search = Callable[[Array, DeviceArray, tuple[Any, ...]], None]


def paths(
    batch: GraphBatch,
    sources: DeviceArray | None,
    width: int,
    search: Search,
    *,
    distances: Any = NULL,
    starts: Any = NULL,
) -> Paths:
    """Return what the shortest paths from ``sources`` come to.

    width      of how many sources a team takes at a time
    distances  (sum of sizes squared,) to be written, too; starts: where each graph's begin
    """
    ptr, source_starts, listed = sources_of(batch, sources)
    planned = plan_items(ptr, source_starts, width, busy())
    reached = cp.empty(planned.slots, cp.int64)
    total, inverse = cp.empty(planned.slots), cp.empty(planned.slots)
    farthest = cp.empty(len(listed))
    search(planned.items, listed, (reached, total, inverse, farthest, distances, starts))
    eccentricity, nodes = cp.zeros(batch.nodes), batch.nodes
    eccentricity[listed] = farthest
    return Paths(
        summed(planned, reached, nodes),
        summed(planned, total, nodes),
        summed(planned, inverse, nodes),
        eccentricity,
    )


def all_distances(
    batch: GraphBatch, width: int, search: Search, none: float, dtype: Any
) -> DeviceArray:
    """Return the distances of all pairs, a square matrix a graph, ``none`` where no path is."""
    sizes = np.diff(cp.asnumpy(batch.ptr))
    starts = np.concatenate([[0], np.cumsum(sizes**2)])
    distances = cp.full(int(starts[-1]), none, dtype)
    paths(batch, None, width, search, distances=distances, starts=to_gpu(starts))
    return distances
