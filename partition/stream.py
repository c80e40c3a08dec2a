"""Streaming parts: a few passes over the shards, memory of a few numbers a node."""

from __future__ import annotations

import numpy as np

from penstock.csr import Array
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.progress import Progress

# Fennel's exponent: the price of a part grows with load ** (GAMMA - 1), here its square root.
_GAMMA = 1.5


def stream(graph: Graph, k: int, capacity: int, passes: int, *, quiet: bool = True) -> Array:
    """Return Fennel's parts, (nodes,) int32, none heavier than ``capacity``.

    Nodes come in the order in which they are stored: crawls and logs put neighbours close
    together, and a shuffled order would lose that and read the disk at random.
    """
    parts = np.full(graph.num_nodes, -1, np.int32)
    loads, counts = np.zeros(k, np.int64), np.zeros(k, np.int64)
    kernels = kernel("streaming", parts)
    unit_price = price(graph.num_edges, k)
    total = passes * graph.num_edges
    with Progress("stream", total=total, unit="edges", quiet=quiet) as progress:
        for _ in range(passes):
            before = parts.copy()
            for number in range(graph.num_shards):
                shard = graph.shard(number)
                rows = shard.indptr, shard.indices, shard.first_row
                kernels.stream_rows(*rows, parts, loads, counts, capacity, unit_price)
                progress.advance(shard.edges)
            if np.array_equal(before, parts):
                break
    return parts


def price(load: int, k: int) -> float:
    """Return Fennel's price of a unit of load: at even load, three quarters of a neighbour.

    alpha = edges * k ** (gamma - 1) / load ** gamma, and the marginal price is its derivative.
    """
    return _GAMMA * 0.5 * float(np.sqrt(k / max(load, 1)))
