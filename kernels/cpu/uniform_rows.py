"""Rows of uniform random numbers, in Numba; the meaning is naive/uniform_rows.py's."""

from __future__ import annotations

import numpy as np
from numba import int64, uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry
from penstock.kernels.cpu.philox import philox4x32


@entry()
def uniform_rows(seed: uint64, stream: int, which: Array, width: int, step: int = 0) -> Array:
    """Return numbers between -1 and 1, both excluded: (len(which), width) float32."""
    rows = np.empty((len(which), width), np.float32)
    fours = -(-width // 4)
    for i in range(len(which)):
        for four in range(fours):
            number = uint64(which[i]) * uint64(fours) + uint64(four)
            words = philox4x32(seed, stream, number, step)
            for k in range(4):
                j = 4 * four + k
                if j < width:
                    bits = int64(words[k] >> uint32(8))
                    rows[i, j] = np.float32((2 * bits + 1 - (1 << 24)) / 2.0**24)
    return rows
