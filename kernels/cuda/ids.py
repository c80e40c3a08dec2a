"""Dictionary coding of integers on the GPU: one sort."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray


def encode(values: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return the distinct values in ascending order, and each value's position among them."""
    distinct, codes = cp.unique(values, return_inverse=True)
    return distinct, codes.astype(cp.int32)
