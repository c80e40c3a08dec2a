"""Preparation of training: initial vectors, counts, and tables of the vocabulary."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import ALWAYS


def start_rows(seed: int, words: DeviceArray, dimension: int) -> DeviceArray:
    """Return the initial input vectors of these words: (words, dimension) float32."""
    words = cp.ascontiguousarray(cp.asarray(words, cp.int64))
    rows = cp.empty((len(words), dimension), cp.float32)
    launch(
        "word2vec/start",
        "start_rows",
        len(words) * -(-dimension // 4),
        cp.uint64(seed & (2**64 - 1)),
        cp.uint32(Stream.WORD2VEC_INIT),
        words,
        cp.int64(len(words)),
        cp.int32(dimension),
        rows,
    )
    return rows


def count_words(tokens: DeviceArray, counts: DeviceArray) -> None:
    """Add each word's occurrences in tokens to its count; negative numbers are skipped."""
    assert tokens.dtype == cp.int32
    assert counts.dtype == cp.int64
    tokens = cp.ascontiguousarray(tokens)
    launch("word2vec/start", "count_words", tokens.size, tokens, cp.int64(tokens.size), counts)


def noise_table(counts: Any) -> tuple[DeviceArray, DeviceArray]:
    """Return the alias table that draws words in proportion to ``counts**0.75``.

    As in the twins, in the same order: slots with less than a word's share take from those with
    more, and one that has given too much takes from the next. Running sums of integers, without
    rounding, show which slot gives to which. NumPy computes it: each of CuPy's fifty functions
    would be compiled at a first run, 10 s together.

    counts (V,) int64, not all 0 -> chance (V,) uint32, alias (V,) int32: see Noise
    """
    counts = cp.asnumpy(counts)
    root = np.sqrt(counts.astype(np.float64))
    share = root * np.sqrt(root)
    share *= len(counts) / share.sum()
    # Bits: sums stay below 2**63, and shares that differ from 1 only by rounding are 1.
    finer = min(max(30 - len(counts).bit_length(), 0), 12)
    whole = 1 << (32 + finer)
    chance = np.rint(share * float(whole)).astype(np.int64)
    alias = np.arange(len(counts), dtype=np.int32)
    less = chance < whole
    small, large = np.flatnonzero(less)[::-1], np.flatnonzero(~less)[::-1]
    if len(small):
        lacks = whole - chance[small]
        taken, given = np.cumsum(lacks), np.cumsum(chance[large] - whole)
        giver = np.searchsorted(given, taken - lacks, side="left")
        # Slots without one due to rounding; a word without count is never drawn.
        alone, none = giver == len(large), counts[small] == 0
        found = large[np.minimum(giver, len(large) - 1)]
        found = np.where(alone, np.where(none, np.argmax(counts), small), found)
        alias[small] = found
        chance[small] = np.where(alone & ~none, whole, chance[small])
        # The slot at which a large one has given too much, and the one it then takes from.
        last = np.searchsorted(taken, given, side="right")
        gives = last < len(small)
        left = given + whole - taken[np.minimum(last, len(small) - 1)]
        gives[-1] = False
        alias[large] = np.where(gives, np.append(large[1:], large[-1:]), large)
        chance[large] = np.where(gives, left, whole)
    chance = (chance + (whole >> 33)) >> finer
    alias = np.where(chance >= ALWAYS, np.arange(len(counts), dtype=np.int32), alias)
    return cp.asarray(np.minimum(chance, ALWAYS).astype(np.uint32)), cp.asarray(alias)


def keep_thresholds(counts: Any, sample: float) -> DeviceArray:
    """Return the thresholds of subsampling, ALWAYS for words that are always kept."""
    counts = cp.asnumpy(counts)
    expected = sample * counts.sum(dtype=np.float64) / np.maximum(counts, 1)
    chance = np.sqrt(expected) + expected
    return cp.asarray(np.minimum(np.rint(chance * 2.0**32), ALWAYS).astype(np.uint32))
