"""Degrees of a graph without its removed nodes, in Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.compiled import entry, njit
from penstock.kernels.row_blocks import row_blocks
from penstock.threads import spread


@entry("degrees")
def add_degrees(
    indptr: Array, indices: Array, first_row: int, keep: Array, degrees: Array, inward: bool
) -> None:
    """Add to ``degrees`` each row's neighbours, counting only edges between kept nodes."""
    for row in range(len(indptr) - 1):
        source = first_row + row
        if not keep[source]:
            continue
        count = 0
        for e in range(indptr[row], indptr[row + 1]):
            target = indices[e]
            if keep[target]:
                count += 1
                if inward:
                    degrees[target] += 1
        degrees[source] += count


def count_edges(rows: Sequence[CSR]) -> tuple[int, int]:
    """Return the numbers of distinct entries of all rows, and of those that are loops."""
    blocks = row_blocks(rows)
    found = np.zeros((len(blocks), 2), np.int64)

    def count(number: int) -> None:
        indptr, indices, _, low, high, first_row = blocks[number].arrays()
        found[number] = _count_edges(indptr, indices, low, high, first_row)

    spread(count, range(len(blocks)))
    distinct, loops = found.sum(0).tolist()
    return distinct, loops


@njit(cache=True, nogil=True)
def _count_edges(
    indptr: Array, indices: Array, low: int, high: int, first_row: int
) -> tuple[int, int]:
    distinct = loops = 0
    for row in range(low, high):
        before = np.int64(-1)
        for edge in range(indptr[row], indptr[row + 1]):
            other = np.int64(indices[edge])
            new = other != before
            distinct += new
            loops += new and other == first_row + row
            before = other
    return distinct, loops
