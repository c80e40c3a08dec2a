"""Rows of uniform random numbers, each row a function of its number: the reference, in NumPy."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive.philox import random_words_of


def uniform_rows(seed: int, stream: int, which: Array, width: int, step: int = 0) -> Array:
    """Return numbers between -1 and 1, both excluded: (len(which), width) float32.

    Value j of row i is word j % 4 of the draw of ``which[i] * ceil(width / 4) + j // 4``: of its
    upper 24 bits b, (2 b + 1) / 2**24 - 1, rounded to float32.
    """
    fours = -(-width // 4)
    first = np.asarray(which, np.uint64) * np.uint64(fours)
    numbers = first[:, None] + np.arange(fours, dtype=np.uint64)
    words = random_words_of(seed, stream, numbers.ravel(), step)
    bits = (words.reshape(len(which), 4 * fours)[:, :width] >> np.uint32(8)).astype(np.int64)
    return ((2 * bits + 1 - (1 << 24)) / 2.0**24).astype(np.float32)
