"""64 bits of rows of numbers, by which an output knows them again without keeping them."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array

_KEY = 40
_ROWS = 1 << 14  # at once


def print_factors(width: int) -> Array:
    """Return the random odd number of each column: (width,) uint64."""
    found: Array = np.random.Philox(key=_KEY).random_raw(width) | np.uint64(1)
    return found


def prints_of(values: Array, factors: Array) -> Array:
    """Return the sum of each row's values, as whole numbers, times the factors: (rows,) uint64."""
    found = np.empty(len(values), np.uint64)
    for first in range(0, len(values), _ROWS):
        found[first : first + _ROWS] = words(values[first : first + _ROWS]) @ factors
    return found


def words(values: Array) -> Array:
    """Return the bits of numbers as uint64."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint64)
