"""Dictionary coding of integers, and hashes of texts: the reference."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def encode(values: Array) -> tuple[Array, Array]:
    """Return the distinct values in ascending order, and each value's position among them.

    values  (n,) int64
    ->      distinct (u,) int64 ascending; codes (n,) int32 with ``distinct[codes] == values``
    """
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.astype(np.int32)


def hashes(data: Array, offsets: Array) -> Array:
    """Return the 64-bit FNV-1a hash of each text ``data[offsets[i]:offsets[i + 1]]``: (n,) uint64.

    Splits are drawn by it, so it must never change.
    """
    found = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(found)):
        value = 0xCBF29CE484222325
        for byte in data[offsets[i] : offsets[i + 1]].tolist():
            value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
        found[i] = value
    return found
