"""What a GPU finds out about rows; meaning as in naive/small_graphs.py."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray

_PIECE = 1 << 28  # edges that are compared at a time


def parallel_edges(indptr: DeviceArray, indices: DeviceArray) -> bool:
    """Return whether a row of ascending neighbours has a repeated one."""
    starts = cp.unique(indptr[1:-1])
    starts = starts[(starts > 0) & (starts < len(indices))]
    between = int(cp.count_nonzero(indices[starts] == indices[starts - 1]))
    equal = 0
    for first in range(0, len(indices) - 1, _PIECE):
        some = indices[first : first + _PIECE + 1]
        equal += int(cp.count_nonzero(some[1:] == some[:-1]))
    return equal > between
