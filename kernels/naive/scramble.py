"""A keyed shuffle of 0 .. size - 1 that needs no table: the reference, in plain NumPy.

A Feistel network over the bits of the id, with Philox as its round function, permutes a power of
two; an id at or above ``size`` is permuted again until it is below.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.generate_rules import ROUNDS
from penstock.kernels.naive.philox import philox4x32


def scramble(seed: int, stream: int, first: int, count: int, size: int) -> Array:
    """Return the positions of ``first .. first + count`` in the shuffle of ``size`` ids: (count,)
    int32."""
    bits = max(size - 1, 1).bit_length()
    low_bits = bits // 2
    low_mask = np.uint64((1 << low_bits) - 1)
    high_mask = np.uint64((1 << (bits - low_bits)) - 1)
    shift = np.uint64(low_bits)
    ids = np.arange(first, first + count, dtype=np.uint64)
    outside = np.ones(count, bool)
    while outside.any():
        low, high = ids[outside] & low_mask, ids[outside] >> shift
        for turn in range(0, ROUNDS, 2):
            low = low ^ (philox4x32(seed, stream, high, turn)[0] & low_mask)
            high = high ^ (philox4x32(seed, stream, low, turn + 1)[0] & high_mask)
        ids[outside] = (high << shift) | low
        outside = ids >= size
    return ids.astype(np.int32)
