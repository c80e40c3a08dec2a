"""Degrees of a graph without its removed nodes, in Numba."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


def add_degrees(
    indptr: Array, indices: Array, first_row: int, keep: Array, degrees: Array, *, inward: bool
) -> None:
    """Add to ``degrees`` each row's neighbours, counting only edges between kept nodes."""
    _add_degrees(np.asarray(indptr), np.asarray(indices), first_row, keep, degrees, inward)


@njit(cache=True, nogil=True)
def _add_degrees(
    indptr: Array, indices: Array, first_row: int, keep: Array, degrees: Array, inward: bool
) -> None:
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
