"""Fennel balanced by load, in Numba; meaning as in naive/streaming.py.

Sequential, because a node's place depends on all earlier ones.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import entry


@entry("parts", "loads", "counts")
def stream_rows(
    indptr: Array,
    indices: Array,
    first_row: int,
    parts: Array,
    loads: Array,
    counts: Array,
    capacity: int,
    price: float,
) -> None:
    """Place the nodes of one row range; ``parts``, ``loads`` and ``counts`` change in place."""
    k = len(loads)
    links = np.zeros(k, np.int64)
    roots = np.sqrt(loads.astype(np.float64))
    for row in range(len(indptr) - 1):
        node, load = first_row + row, indptr[row + 1] - indptr[row]
        if parts[node] >= 0:
            loads[parts[node]] -= load
            counts[parts[node]] -= 1
            roots[parts[node]] = sqrt(loads[parts[node]])
        best = 0
        if load == 0:
            for p in range(1, k):
                if counts[p] < counts[best]:
                    best = p
        else:
            for edge in range(indptr[row], indptr[row + 1]):
                part = parts[indices[edge]]
                if part >= 0 and indices[edge] != node:
                    links[part] += 1
            found = False
            best_score = 0.0
            for p in range(k):
                if loads[p] + load > capacity:
                    continue
                score = links[p] - price * load * roots[p]
                equal = score == best_score and loads[p] < loads[best]
                if not found or score > best_score or equal:
                    found, best, best_score = True, p, score
            if not found:
                for p in range(1, k):
                    if loads[p] < loads[best]:
                        best = p
            links[:] = 0
        parts[node] = best
        loads[best] += load
        counts[best] += 1
        roots[best] = sqrt(loads[best])
