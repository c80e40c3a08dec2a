"""Dictionary coding of integers, by a bitmap if ids are dense, else by hashing; hashes of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.csr import sort_keys

# A bitmap pays off up to the size of the data: one bit per id against 64 per value.
_DENSE = 64


def encode(values: Array) -> tuple[Array, Array]:
    """Return the distinct values in ascending order, and each value's position among them."""
    if len(values) == 0:
        return values.astype(np.int64), np.empty(0, np.int32)
    low, high = int(values.min()), int(values.max())
    if high - low < _DENSE * len(values):
        span = high - low + 1
        words = (span + 63) >> 6
        bits, before = np.zeros(words, np.uint64), np.empty(words, np.int32)
        distinct = np.empty(min(span, len(values)), np.int64)
        codes = np.empty(len(values), np.int32)
        count = _encode_dense(values, low, bits, before, distinct, codes)
        return distinct[:count], codes
    slots = np.full(1 << max(10, (2 * len(values) - 1).bit_length()), -1, np.int32)
    distinct, codes = np.empty(len(values), np.int64), np.empty(len(values), np.int32)
    distinct = distinct[: _encode_sparse(values, slots, distinct, codes)].copy()
    # As unsigned keys relative to the smallest: few bits, few passes.
    keys = distinct.view(np.uint64) - np.uint64(low % 2**64)
    _, order = sort_keys(keys, (high - low).bit_length(), with_order=True)
    rank = np.empty(len(distinct), np.int32)
    rank[order] = np.arange(len(distinct), dtype=np.int32)
    return distinct[order], rank[codes]


@njit(cache=True, nogil=True)
def _encode_dense(
    values: Array, low: int, bits: Array, before: Array, distinct: Array, codes: Array
) -> int:
    """Return the number of distinct values; ``before`` gets the number below each word."""
    words = len(bits)
    one, low_six = np.uint64(1), np.uint64(63)
    for value in values:
        offset = np.uint64(value - low)
        bits[offset >> np.uint64(6)] |= one << (offset & low_six)
    count = 0
    for word in range(words):
        before[word] = count
        count += _popcount(bits[word])
    found = 0
    for word in range(words):
        left = bits[word]
        while left != 0:
            lowest = left & (~left + one)
            distinct[found] = low + (word << 6) + _popcount(lowest - one)
            found += 1
            left ^= lowest
    for i in range(len(values)):
        offset = np.uint64(values[i] - low)
        home = offset >> np.uint64(6)
        below = bits[home] & ((one << (offset & low_six)) - one)
        codes[i] = before[home] + _popcount(below)
    return count


@njit(cache=True, inline="always")
def _popcount(word: Any) -> Any:
    # LLVM recognises this shape and emits one popcnt instruction.
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def _encode_sparse(values: Array, slots: Array, distinct: Array, codes: Array) -> int:
    mask = np.uint64(len(slots) - 1)
    count = 0
    for i in range(len(values)):
        value = values[i]
        mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
        slot = (mixed ^ (mixed >> np.uint64(29))) & mask
        while slots[slot] >= 0 and distinct[slots[slot]] != value:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            distinct[count] = value
            count += 1
        codes[i] = slots[slot]
    return count


@njit(cache=True, nogil=True)
def hashes(data: Array, offsets: Array) -> Array:
    """Return the 64-bit FNV-1a hash of each text: (n,) uint64."""
    found = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(found)):
        value = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        found[i] = value
    return found
