"""What stands before training: start vectors, counts, and tables of the vocabulary.

An operator between an array and a number (``array + 1``) would have CuPy import cupyx.scipy, and so
SciPy, half a second of a command; its functions (``cp.add(array, 1)``) do not. That is so for
``cp.bincount`` too, which has such an operator inside.
"""

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


def count_words(tokens: DeviceArray, counts: DeviceArray) -> None:
    """Add how often each word is among tokens to its count; negative numbers are none.

    tokens int32 of any shape, counts (V,) int64
    """
    assert tokens.dtype == cp.int32
    assert counts.dtype == cp.int64
    tokens = cp.ascontiguousarray(tokens)
    launch("word2vec/start", "count_words", tokens.size, tokens, cp.int64(tokens.size), counts)


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
    share *= cp.divide(len(counts), share.sum())
    # Bits: sums stay below 2**63, and what only rounding makes unequal to a whole is one.
    finer = min(max(30 - len(counts).bit_length(), 0), 12)
    whole = 1 << (32 + finer)
    chance = cp.rint(cp.multiply(share, float(whole))).astype(cp.int64)
    alias = cp.arange(len(counts), dtype=cp.int32)
    less = cp.less(chance, whole)
    small, large = (cp.flatnonzero(where)[::-1] for where in (less, ~less))
    if len(small):
        lacks = cp.subtract(whole, chance[small])
        taken, given = cp.cumsum(lacks), cp.cumsum(cp.subtract(chance[large], whole))
        giver = cp.searchsorted(given, taken - lacks, side="left")
        # Those that rounding left without one; but a word without count is never drawn.
        alone, none = cp.equal(giver, len(large)), cp.equal(counts[small], 0)
        found = large[cp.minimum(giver, len(large) - 1)]
        found = cp.where(alone, cp.where(none, cp.argmax(counts), small), found)
        alias[small] = found.astype(cp.int32)
        chance[small] = cp.where(alone & ~none, whole, chance[small])
        # The slot by which one of the large has given too much, and from which it takes then.
        last = cp.searchsorted(taken, given, side="right")
        gives = cp.less(last, len(small))
        left = cp.add(given, whole) - taken[cp.minimum(last, len(small) - 1)]
        following = cp.concatenate([large[1:], large[-1:]])
        gives[-1] = False
        alias[large] = cp.where(gives, following, large).astype(cp.int32)
        chance[large] = cp.where(gives, left, whole)
    chance = cp.right_shift(cp.add(chance, whole >> 33), finer)
    full = cp.greater_equal(chance, ALWAYS)
    alias = cp.where(full, cp.arange(len(counts), dtype=cp.int32), alias)
    return cp.minimum(chance, ALWAYS).astype(cp.uint32), alias


def keep_thresholds(counts: Any, sample: float) -> DeviceArray:
    """Return the thresholds of subsampling, ALWAYS for words that are never left out.

    A word with the share f of all words is kept with the chance ``sqrt(sample / f) + sample / f``.
    counts (V,) int64, sample above 0 -> (V,) uint32
    """
    counts = cp.asarray(counts)
    expected = cp.multiply(sample, counts.sum(dtype=cp.float64)) / cp.maximum(counts, 1)
    chance = cp.sqrt(expected) + expected
    return cp.minimum(cp.rint(cp.multiply(chance, 2.0**32)), ALWAYS).astype(cp.uint32)
