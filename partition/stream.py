"""Streamed parts: a few passes over the shards, and a few numbers of memory per node."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.partition.metis import row_pieces
from penstock.progress import Progress
from penstock.threads import results

# Fennel's exponent: the price of a part grows with load ** (GAMMA - 1), here its square root.
_GAMMA = 1.5
# The price rises from pass to pass: low prices first gather neighbours, high ones then balance the
# parts. A constant price cut up to a fifth more on social graphs, never much less.
_FIRST, _LAST = 0.1, 1.5


def stream(graph: Graph, k: int, capacity: int, passes: int, *, quiet: bool = True) -> Array:
    """Return Fennel's parts, (nodes,) int32, none heavier than ``capacity`` if that is possible.

    Nodes come in stored order: crawls and logs put neighbours close together; a shuffled order
    would lose that and read the disk at random.
    """
    parts = np.full(graph.num_nodes, -1, np.int32)
    loads, counts = np.zeros(k, np.int64), np.zeros(k, np.int64)
    kernels = kernel("streaming", parts)
    total = passes * graph.num_edges
    with Progress("stream", total=total, unit="edges", quiet=quiet) as progress:
        for price in prices(graph.num_edges, k, passes):
            for number in range(graph.num_shards):
                shard = graph.shard(number)
                rows = shard.indptr, shard.indices, shard.first_row
                kernels.stream_rows(*rows, parts, loads, counts, capacity, price)
                progress.advance(shard.edges)
    return parts


def place_new(graph: Graph, parts: Array, loads: Array, counts: Array, capacity: int) -> None:
    """Give the nodes without a part, -1, one by Fennel, in place; the others stay.

    loads, counts  (k,) int64 of those that stay
    """
    kernels, (price,) = kernel("streaming", parts), prices(graph.num_edges, len(loads), 1)
    for number, entry in enumerate(graph.manifest.shards):
        new = np.flatnonzero(parts[entry.start : entry.stop] < 0)
        if len(new):
            shard = graph.shard(number)
            for run in np.split(new, np.flatnonzero(np.diff(new) > 1) + 1):
                rows = shard.row_range(int(run[0]), int(run[-1]) + 1)
                given = rows.indptr, rows.indices, rows.first_row
                kernels.stream_rows(*given, parts, loads, counts, capacity, price)


def cut_share(graph: Graph, parts: Array) -> float:
    """Return the share of edges that lead to another part."""

    def count(rows: CSR) -> int:
        own = parts[rows.first_row : rows.first_row + rows.rows].repeat(rows.degrees())
        return int(np.count_nonzero(own != parts[rows.indices]))

    return sum(results(count, row_pieces(graph))) / max(graph.num_edges, 1)


def prices(load: int, k: int, passes: int) -> list[float]:
    """Return Fennel's price of a unit of load, for each pass.

    Fennel's own is the derivative of alpha * load ** gamma, with alpha = edges * k ** (gamma - 1)
    / load ** gamma: at even load a unit costs three quarters of a neighbour.
    """
    own = _GAMMA * 0.5 * float(np.sqrt(k / max(load, 1)))
    factors = [1.0] if passes == 1 else np.geomspace(_FIRST, _LAST, passes).tolist()
    return [own * factor for factor in factors]
