"""Greedy placement by load in Numba: a heap of parts; meaning as in naive/greedy.py."""

from __future__ import annotations

import heapq

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


def place_by_load(load: Array, k: int) -> Array:
    """Return the part of each item: (items,) int32."""
    load = load.astype(np.int64)
    parts: Array = _place_by_load(load, np.argsort(-load, kind="stable"), k)
    return parts


@njit(cache=True, nogil=True)
def _place_by_load(load: Array, order: Array, k: int) -> Array:
    parts = np.empty(len(load), np.int32)
    counts = np.zeros(k, np.int64)
    heap = [(np.int64(0), np.int64(0), np.int64(p)) for p in range(k)]
    weighing = 0
    while weighing < len(order) and load[order[weighing]] > 0:
        item = order[weighing]
        least, count, part = heap[0]
        heapq.heapreplace(heap, (least + load[item], count + 1, part))
        parts[item] = part
        counts[part] += 1
        weighing += 1
    heap = [(np.int64(0), counts[p], np.int64(p)) for p in range(k)]
    heapq.heapify(heap)
    for at in range(weighing, len(order)):
        least, count, part = heap[0]
        heapq.heapreplace(heap, (least, count + 1, part))
        parts[order[at]] = part
    return parts
