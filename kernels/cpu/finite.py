"""Whether values are finite, at the speed of memory; the meaning is naive/finite.py's."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array

_TOGETHER = 1 << 20  # values whose squares are added up


def are_finite(array: Array) -> bool:
    """Return whether all values of a float array are finite."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, flat.size, _TOGETHER):
            some = flat[begin : begin + _TOGETHER]
            # A finite sum of squares implies finite values, and is faster.
            if not (np.isfinite(some @ some) or np.isfinite(some).all()):
                return False
    return True
