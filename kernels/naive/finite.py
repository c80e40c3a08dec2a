"""Whether values are finite: the reference, in NumPy."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def are_finite(array: Array) -> bool:
    """Return whether all values of a float array are finite."""
    return bool(np.isfinite(array).all())
