"""Greedy placement by load (Morphling, algorithm 4, phases II and III): heaviest first."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def place_by_load(load: Array, k: int) -> Array:
    """Return the part of each item: (items,) int32.

    Items come heaviest first, equal ones in their order; each goes to the part with the least
    load, then the fewest items, then the lowest number. Items without load go to the part with
    the fewest items, which balances the counts.
    """
    parts = np.empty(len(load), dtype=np.int32)
    loads, counts = [0] * k, [0] * k
    for item in np.argsort(-load, kind="stable").tolist():
        weighs = load[item] > 0
        part = min(range(k), key=lambda p: (loads[p] if weighs else 0, counts[p], p))
        parts[item] = part
        loads[part] += int(load[item])
        counts[part] += 1
    return parts
