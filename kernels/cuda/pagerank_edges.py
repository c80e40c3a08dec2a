"""The tiles of pagerank.cu, and the edges of one graph that a rank holds: those of its tiles."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.csr import CSR
from penstock.kernels.cuda.module import launch
from penstock.kernels.ranks import EdgesOfRank, Ranks, cuts, share

THREADS = 256
ITEMS = 7 * THREADS  # edges and row ends of a tile, as in pagerank.cu


def tiles_of(indptr: AnyArray) -> tuple[int, int, DeviceArray]:
    """Return the number of edges and of tiles, and the row in which each tile begins."""
    nodes, edges = len(indptr) - 1, int(indptr[-1])
    tiles = -(-(nodes + edges) // ITEMS)
    starts = cp.empty(tiles + 1, np.int64)
    numbers = np.int64(tiles), np.int64(nodes), np.int64(edges)
    launch("pagerank", "cut_rows", tiles + 1, *numbers, indptr, starts)
    return edges, tiles, starts


def edges_of_rank(indptr: DeviceArray, ranks: Ranks) -> tuple[int, int]:
    """Return the range of the edges that a rank computes with."""
    edges, tiles, starts = tiles_of(indptr)
    low, high = share(cuts(tiles, ranks), ranks)
    end = len(indptr) - 1 + edges
    return low * ITEMS - int(starts[low]), min(high * ITEMS, end) - int(starts[high])


def indices_of(rows: CSR, name: str = "indices") -> tuple[Any, int]:
    """Return the address at which the graph's first edge would lie, and the rank's first edge."""
    array: DeviceArray = getattr(rows, name)
    first = rows.first_edge if isinstance(rows, EdgesOfRank) else 0
    return np.uint64((array.data.ptr - first * array.itemsize) % 2**64), first
