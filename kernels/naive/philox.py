"""Philox4x32-10 (Salmon et al., SC 2011): random numbers that are counted, not consumed.

A draw is a pure function of (seed, stream, which, step), so it is the same on any number of
workers, threads and batches. ``which`` is the object of the draw (an edge, a walk, a node), and
``step`` numbers its draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(seed: int, stream: int, which: Any, step: Any) -> tuple[Array, Array, Array, Array]:
    """Return four arrays of 32 random bits (as uint32), shaped like ``which`` and ``step``.

    Key: the seed's two halves. Counter: (which low, which high, step, stream).
    """
    which, step = np.broadcast_arrays(np.asarray(which, np.uint64), np.asarray(step, np.uint64))
    counter = [which & _LOW, which >> _HALF, step & _LOW, np.full_like(which, stream)]
    keys = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(10):
        product0 = counter[0] * np.uint64(_MULTIPLIERS[0])
        product1 = counter[2] * np.uint64(_MULTIPLIERS[1])
        counter = [
            (product1 >> _HALF) ^ counter[1] ^ np.uint64(keys[0]),
            product1 & _LOW,
            (product0 >> _HALF) ^ counter[3] ^ np.uint64(keys[1]),
            product0 & _LOW,
        ]
        keys = [(key + weyl) & 0xFFFFFFFF for key, weyl in zip(keys, _WEYL, strict=True)]
    a, b, c, d = (word.astype(np.uint32) for word in counter)
    return a, b, c, d


def random_words(seed: int, stream: int, first: int, count: int, step: int = 0) -> Array:
    """Return the draws of ``first .. first + count``: (count, 4) uint32."""
    which = np.arange(first, first + count, dtype=np.uint64)
    return np.stack(philox4x32(seed, stream, which, step), axis=1)


def random_words_of(seed: int, stream: int, which: Array, step: int = 0) -> Array:
    """Return the draws of the numbers ``which``: (n, 4) uint32."""
    return np.stack(philox4x32(seed, stream, which, step), axis=1)


def draws(seed: int, stream: int, which: Array, step: Array | int = 0) -> Array:
    """Return the first word of each draw of ``which``: (n,) uint32; one step, or one step each."""
    return philox4x32(seed, stream, which, step)[0]


def random_keys(seed: int, stream: int, first: int, count: int) -> Array:
    """Return a 64-bit key for each of ``first .. first + count``: (count,) uint64."""
    words = random_words(seed, stream, first, count).astype(np.uint64)
    return words[:, 0] | words[:, 1] << _HALF


def uniform(word: Array) -> Array:
    """Map 32 random bits to [0, 1): the upper 24, so that float32 holds the value exactly."""
    return (word >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
