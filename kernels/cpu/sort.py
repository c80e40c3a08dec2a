"""A stable sort within kernels: Numba takes three seconds to compile NumPy's ``argsort``."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


@njit(cache=True, nogil=True)
def stable_order(keys: Array) -> Array:
    """Return the stable order that makes keys ascend; none is NaN."""
    order, merged = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    run = 16  # as long as insertion is faster than merging
    for low in range(0, len(keys), run):
        for at in range(low, min(low + run, len(keys))):
            to = at
            while to > low and keys[at] < keys[order[to - 1]]:
                order[to] = order[to - 1]
                to -= 1
            order[to] = at
    while run < len(keys):
        for low in range(0, len(keys), 2 * run):
            middle, high = min(low + run, len(keys)), min(low + 2 * run, len(keys))
            a, b = low, middle
            for to in range(low, high):
                if a < middle and (b == high or not keys[order[b]] < keys[order[a]]):
                    merged[to] = order[a]
                    a += 1
                else:
                    merged[to] = order[b]
                    b += 1
        order, merged = merged, order
        run *= 2
    return order
