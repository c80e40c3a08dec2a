"""A keyed shuffle of 0 .. size - 1 in Numba; the meaning is naive/scramble.py's."""

from __future__ import annotations

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.generate_rules import ROUNDS


def scramble(seed: int, stream: int, first: int, count: int, size: int) -> Array:
    """Return the new positions of ``first .. first + count`` of ``size`` ids: (count,) int32."""
    bits = max(size - 1, 1).bit_length()
    moved: Array = _scramble(np.uint64(seed), np.uint32(stream), first, count, size, bits)
    return moved


@njit(cache=True, nogil=True)
def _scramble(seed: int, stream: int, first: int, count: int, size: int, bits: int) -> Array:
    low_bits = bits // 2
    shift, limit = uint64(low_bits), uint64(size)
    low_mask = uint32((uint64(1) << uint64(low_bits)) - uint64(1))
    high_mask = uint32((uint64(1) << uint64(bits - low_bits)) - uint64(1))
    moved = np.empty(count, np.int32)
    for i in range(count):
        at = uint64(first) + uint64(i)
        while True:
            low, high = uint32(at) & low_mask, uint32(at >> shift)
            for turn in range(0, ROUNDS, 2):
                low = low ^ (philox4x32(seed, stream, high, turn)[0] & low_mask)
                high = high ^ (philox4x32(seed, stream, low, turn + 1)[0] & high_mask)
            at = (uint64(high) << shift) | uint64(low)
            if at < limit:
                break
        moved[i] = at
    return moved
