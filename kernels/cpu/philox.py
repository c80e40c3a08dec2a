"""Philox4x32-10 in Numba; words and their order are naive/philox.py's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit


@njit(cache=True, inline="always")
def philox4x32(seed: Any, stream: Any, which: Any, step: Any) -> tuple[Any, Any, Any, Any]:
    """Return four words of 32 random bits for one (seed, stream, which, step)."""
    low, half = uint64(0xFFFFFFFF), uint64(32)
    c0, c1 = uint64(which) & low, uint64(which) >> half
    c2, c3 = uint64(step) & low, uint64(stream) & low
    k0, k1 = uint64(seed) & low, uint64(seed) >> half
    for _ in range(10):
        p0 = c0 * uint64(0xD2511F53)
        p1 = c2 * uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0 = (k0 + uint64(0x9E3779B9)) & low
        k1 = (k1 + uint64(0xBB67AE85)) & low
    return uint32(c0), uint32(c1), uint32(c2), uint32(c3)


@entry()
def random_words(seed: uint64, stream: int, first: uint64, count: int, step: int = 0) -> Array:
    """Return the draws of ``first .. first + count``: (count, 4) uint32."""
    words = np.empty((count, 4), np.uint32)
    for i in range(count):
        a, b, c, d = philox4x32(seed, stream, uint64(first) + uint64(i), step)
        words[i, 0], words[i, 1], words[i, 2], words[i, 3] = a, b, c, d
    return words


@entry()
def random_words_of(seed: uint64, stream: int, which: Array, step: int = 0) -> Array:
    """Return the draws of the numbers ``which``: (n, 4) uint32."""
    words = np.empty((len(which), 4), np.uint32)
    for i in range(len(which)):
        a, b, c, d = philox4x32(seed, stream, which[i], step)
        words[i, 0], words[i, 1], words[i, 2], words[i, 3] = a, b, c, d
    return words


@njit(cache=True, nogil=True)
def _draws(seed: int, stream: int, which: Array, steps: Array) -> Array:
    found = np.empty(len(which), np.uint32)
    last = len(steps) - 1  # 0 if all have one step
    for i in range(len(which)):
        found[i] = philox4x32(seed, stream, which[i], steps[min(i, last)])[0]
    return found


def draws(seed: int, stream: int, which: Array, step: Array | int = 0) -> Array:
    """Return the first word of each draw of ``which``: (n,) uint32; one step, or one step each."""
    steps = np.atleast_1d(np.asarray(step, np.uint32))
    found: Array = _draws(np.uint64(seed), np.uint32(stream), which.astype(np.uint64), steps)
    return found


def random_keys(seed: int, stream: int, first: int, count: int) -> Array:
    """Return a 64-bit key for each of ``first .. first + count``: (count,) uint64."""
    words = random_words(seed, stream, first, count)
    return np.ascontiguousarray(words[:, :2]).view(np.uint64)[:, 0]


@njit(cache=True, inline="always")
def uniform(word: Any) -> Any:
    """Map 32 random bits to [0, 1): the upper 24, so that float32 holds the value exactly."""
    return np.float32(uint32(word) >> uint32(8)) * np.float32(2.0**-24)
