"""What stands before training: start vectors, and tables of the vocabulary."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import ALWAYS


def start_rows(seed: int, words: DeviceArray, dimension: int) -> DeviceArray:
    """Return the input vectors that these words start with: (words, dimension) float32."""
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


def noise_table(counts: Any) -> tuple[DeviceArray, DeviceArray]:
    """Return the alias table by which words are drawn as often as ``counts**0.75`` says.

    As the twins do it one by one, in the same order: the slots with less than a word's share take
    from those with more, and one that has given too much takes from the next. Which slot gives to
    which follows from running sums, of whole numbers, in which nothing is lost.

    counts (V,) int64, not all 0 -> chance (V,) uint32, alias (V,) int32: see Noise
    """
    counts = cp.asarray(counts)
    root = cp.sqrt(counts.astype(cp.float64))
    share = root * cp.sqrt(root)
    share *= len(counts) / share.sum()
    # Bits: sums stay below 2**63, and what only rounding makes unequal to a whole is one.
    finer = min(max(30 - len(counts).bit_length(), 0), 12)
    whole = 1 << (32 + finer)
    chance = cp.rint(share * float(whole)).astype(cp.int64)
    alias = cp.arange(len(counts), dtype=cp.int32)
    small, large = (cp.flatnonzero(where)[::-1] for where in (chance < whole, chance >= whole))
    if len(small):
        lacks = whole - chance[small]
        taken, given = cp.cumsum(lacks), cp.cumsum(chance[large] - whole)
        giver = cp.searchsorted(given, taken - lacks, side="left")
        # Those that rounding left without one; but a word without count is never drawn.
        alone, none = giver == len(large), counts[small] == 0
        found = large[cp.minimum(giver, len(large) - 1)]
        found = cp.where(alone, cp.where(none, cp.argmax(counts), small), found)
        alias[small] = found.astype(cp.int32)
        chance[small] = cp.where(alone & ~none, whole, chance[small])
        # The slot by which one of the large has given too much, and from which it takes then.
        last = cp.searchsorted(taken, given, side="right")
        gives = last < len(small)
        left = whole + given - taken[cp.minimum(last, len(small) - 1)]
        following = cp.concatenate([large[1:], large[-1:]])
        gives[-1] = False
        alias[large] = cp.where(gives, following, large).astype(cp.int32)
        chance[large] = cp.where(gives, left, whole)
    chance = (chance + (whole >> 33)) >> finer
    full = chance >= ALWAYS
    alias = cp.where(full, cp.arange(len(counts), dtype=cp.int32), alias)
    return cp.minimum(chance, ALWAYS).astype(cp.uint32), alias


def keep_thresholds(counts: Any, sample: float) -> DeviceArray:
    """Return the thresholds of subsampling, ALWAYS for words that are never left out.

    A word with the share f of all words is kept with the chance ``sqrt(sample / f) + sample / f``.
    counts (V,) int64, sample above 0 -> (V,) uint32
    """
    counts = cp.asarray(counts)
    expected = sample * counts.sum(dtype=cp.float64) / cp.maximum(counts, 1)
    chance = cp.sqrt(expected) + expected
    return cp.minimum(cp.rint(chance * 2.0**32), ALWAYS).astype(cp.uint32)
