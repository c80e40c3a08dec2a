"""64 bits of each row of a graph, in Numba."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit

_MIX = 0xD6E8FEB86659FD93


def row_prints(indptr: Array, indices: Array, more: Array | None = None) -> Array:
    """Return bits of each row, which do not depend on the order of its edges: (rows,) uint64."""
    found = np.empty(len(indptr) - 1, np.uint64)
    more = np.empty(0, np.uint64) if more is None else more
    _row_prints(np.asarray(indptr), np.asarray(indices), more, found)
    return found


@njit(cache=True, nogil=True)
def _row_prints(indptr: Array, indices: Array, more: Array, found: Array) -> None:
    for row in range(len(found)):
        begin, end = indptr[row], indptr[row + 1]
        total = np.uint64(end - begin)
        bits = np.uint64(0)
        for e in range(begin, end):
            key = np.uint64(indices[e])
            if len(more):
                key ^= more[e]
            key = (key ^ (key >> np.uint64(32))) * np.uint64(_MIX)
            key = (key ^ (key >> np.uint64(29))) * np.uint64(_MIX)
            bits += key ^ (key >> np.uint64(32))
        found[row] = bits ^ total
