"""PageRank of one graph on all cores; meaning as in naive/pagerank.py.

Each node adds what its in-neighbours give, so that no two threads write the same number. A step
reads every edge once (4 or 8 bytes, and 8 with weights), and gathers 4 or 8 bytes per edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.transpose import transpose
from penstock.kernels.cpu.vector import pointer
from penstock.kernels.ranks import Ranks, gather, share
from penstock.kernels.row_blocks import RowBlock, row_blocks, shares_of
from penstock.threads import spread


class _Vectors(NamedTuple):
    """Numbers of nodes, (nodes,) float64 each; those of length 0 are equal for all nodes."""

    sums: Array  # of the weights of out-edges
    personal: Array
    dangling: Array


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
    """Return PageRank, (nodes,) float64, and the number of steps, or -1 if ``most`` are too few."""
    nodes = sum(each.rows for each in rows)
    if nodes == 0:
        return np.zeros(0), 1
    sums = _sums(rows, nodes, weighted, threads, ranks)
    none = np.empty(0)
    personal = none if personal is None else personal
    given = _Vectors(sums, personal, personal if dangling is None else dangling)
    if directed:
        rows = transpose(rows, weighted=weighted, folder=folder, threads=threads, ranks=ranks)
    blocks = row_blocks(rows)
    shares, nodes_of = shares_of(blocks, nodes, ranks)
    x = np.full(nodes, 1 / nodes) if start is None else np.array(start, np.float64)
    gives = np.divide(x, sums, out=np.zeros(nodes), where=sums > 0).astype(dtype)
    then = np.empty(nodes, dtype)
    lost = float(x[sums == 0].sum())
    parts = np.empty((len(blocks), 2))

    def pull(number: int) -> None:
        block = blocks[number]
        parts[number] = _pull(
            *block.arrays(weighted=weighted), gives, *given, lost, damping, x, then
        )

    steps = -1
    for step in range(1, most + 1):
        spread(pull, range(*share(shares, ranks)), threads)
        gather(then, nodes_of, ranks)
        gather(parts, shares, ranks)
        change, lost = (float(each) for each in parts.sum(0))
        gives, then = then, gives
        if change < nodes * tolerance:
            steps = step
            break
    gather(x, nodes_of, ranks)
    return x, steps


def _sums(
    rows: Sequence[CSR], nodes: int, weighted: bool, threads: int | None, ranks: Ranks | None
) -> Array:
    """Return the sum of the weights of the edges of each row."""
    found, blocks = np.empty(nodes), row_blocks(rows)
    shares, nodes_of = shares_of(blocks, nodes, ranks)

    def add(block: RowBlock) -> None:
        _add(*block.arrays(weighted=weighted), found)

    spread(add, blocks[slice(*share(shares, ranks))], threads)
    gather(found, nodes_of, ranks)
    return found


@njit(cache=True, nogil=True)
def _add(
    indptr: Array,
    indices: Array,
    weights: Array,
    low: int,
    high: int,
    first_row: int,
    sums: Array,
) -> None:
    for row in range(low, high):
        if len(weights) == 0:
            sums[first_row + row] = indptr[row + 1] - indptr[row]
            continue
        total = 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            total += weights[edge]
        sums[first_row + row] = total


@njit(cache=True, nogil=True)
def _pull(
    indptr: Array,
    indices: Array,
    weights: Array,
    low: int,
    high: int,
    first_row: int,
    gives: Array,
    sums: Array,
    personal: Array,
    dangling: Array,
    lost: float,
    damping: float,
    x: Array,
    then: Array,
) -> tuple[float, float]:
    """Write new ranks of some rows; return how much they changed, and the part without out-edges.

    gives  (nodes,): rank by weight of an out-edge; then: the same of the new ranks
    lost   ranks of all nodes without out-edges
    """
    given, ends = pointer(gives), pointer(indices)
    weighted, even = len(weights) > 0, 1.0 / len(x)
    change, losing = 0.0, 0.0
    for row in range(low, high):
        node = first_row + row
        total = 0.0
        if weighted:
            for edge in range(indptr[row], indptr[row + 1]):
                total += given[ends[edge]] * weights[edge]
        else:
            for edge in range(indptr[row], indptr[row + 1]):
                total += given[ends[edge]]
        begins = personal[node] if len(personal) > 0 else even
        takes = dangling[node] if len(dangling) > 0 else even
        new = damping * (total + lost * takes) + (1.0 - damping) * begins
        change += abs(new - x[node])
        x[node] = new
        if sums[node] > 0:
            then[node] = new / sums[node]
        else:
            then[node] = 0.0
            losing += new
    return change, losing
