"""Columns whose edges are sorted at once."""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray


def ranges_of_columns(indptr: DeviceArray, most: int) -> list[tuple[int, int, int, int]]:
    """Return ranges of columns, and of their edges: at most ``most``, or a single column's."""
    found = []
    first, low, columns, edges = 0, 0, len(indptr) - 1, int(indptr[-1])
    while low < edges:
        end = cp.asarray(np.array([low + most]))
        last = max(first + 1, int(cp.searchsorted(indptr, end, side="right")[0]) - 1)
        last = min(last, columns)
        high = int(indptr[last])
        if high > low:
            found.append((first, last, low, high))
        first, low = last, high
    return found
