"""Negatives in Numba; the meaning is naive/embed.py's."""

from __future__ import annotations

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.walk.step import scaled
from penstock.kernels.embed_rules import CHUNK_BITS, NegativePool
from penstock.kernels.streams import Stream

_NEGATIVE = int(Stream.EMBED_NEGATIVE)
_HALF = np.uint64(32)
_ROUND = 2.0**32
_NO_CHANCE, _NO_OTHER = np.empty(0, np.float32), np.empty(0, np.int32)


def draw_negatives(
    seed: int, number: int, sides: int, chunks: int, count: int, pool: NegativePool
) -> Array:
    """Return the negatives of a batch: (sides, chunks, count) int32 rows."""
    rows = np.empty((sides, chunks, count), np.int32)
    _draw(
        np.uint64(seed),
        np.uint64(number << CHUNK_BITS),
        np.ascontiguousarray(pool.first, np.int64),
        np.ascontiguousarray(pool.start, np.int64),
        _NO_CHANCE if pool.chance is None else pool.chance,
        _NO_OTHER if pool.other is None else pool.other,
        rows.reshape(sides * chunks, count),
    )
    return rows


@njit(cache=True, nogil=True)
def _draw(
    seed: int,
    number: int,
    first: Array,
    start: Array,
    chance: Array,
    other: Array,
    rows: Array,
) -> None:
    total = start[-1]
    for group in range(rows.shape[0]):
        which = number | uint64(group)
        for place in range(rows.shape[1]):
            low, high, _, coin = philox4x32(seed, _NEGATIVE, which, place)
            slot = scaled(uint64(high) << _HALF | uint64(low), total)
            if len(chance) and np.float64(coin) >= np.float64(chance[slot]) * _ROUND:
                slot = np.int64(other[slot])
            at, end = 0, len(start) - 2
            while at < end:  # the last non-empty range that begins at or before the slot
                middle = (at + end + 1) // 2
                if start[middle] <= slot:
                    at = middle
                else:
                    end = middle - 1
            rows[group, place] = first[at] + slot - start[at]
