"""Preparation of training, in Numba; names and meaning are naive/word2vec.py's."""

from __future__ import annotations

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.philox import philox4x32, uniform
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import ALWAYS

_INIT = int(Stream.WORD2VEC_INIT)
_ALWAYS = float(ALWAYS)


@entry()
def start_rows(seed: uint64, words: Array, dimension: int) -> Array:
    """Return the initial input vectors of these words: (words, dimension) float32."""
    rows = np.empty((len(words), dimension), np.float32)
    for i in range(len(words)):
        for first in range(0, dimension, 4):
            drawn = philox4x32(seed, uint32(_INIT), uint64(words[i]), uint64(first // 4))
            for j in range(min(4, dimension - first)):
                centred = uniform(drawn[j]) - np.float32(0.5)
                rows[i, first + j] = centred / np.float32(dimension)
    return rows


def count_words(tokens: Array, counts: Array) -> None:
    """Add each word's occurrences in tokens to its count; negative numbers are skipped."""
    # Negative numbers, which are -1, are counted too: to skip them takes longer.
    counts += np.bincount(tokens.reshape(-1) + 1, minlength=len(counts) + 1)[1:]


def noise_table(counts: Array) -> tuple[Array, Array]:
    """Return the alias table that draws words in proportion to ``counts**0.75``."""
    root = np.sqrt(counts.astype(np.float64))
    share = root * np.sqrt(root)
    share *= len(counts) / share.sum()
    alias = np.arange(len(counts), dtype=np.int32)
    _pair(counts, share, alias, int(np.argmax(counts)), np.empty(len(counts), np.int32))
    return np.minimum(np.rint(share * 2.0**32), _ALWAYS).astype(np.uint32), alias


@njit(cache=True, nogil=True)
def _pair(counts: Array, share: Array, alias: Array, largest: int, stack: Array) -> None:
    """Give the excess of slots with more than a word's share to those with less.

    ``stack`` holds the small slots from its start and the large ones from its end.
    """
    small, large = 0, len(share)
    for word in range(len(share)):
        if share[word] < 1:
            stack[small] = word
            small += 1
    for word in range(len(share)):
        if share[word] >= 1:
            large -= 1
            stack[large] = word
    while small > 0 and large < len(share):
        small -= 1
        taker, giver = stack[small], stack[large]
        alias[taker] = giver
        share[giver] -= 1 - share[taker]
        if share[giver] < 1:
            large += 1
            stack[small] = giver
            small += 1
    for i in range(small):  # rounding remainders; a word without count is never drawn
        if counts[stack[i]] == 0:
            alias[stack[i]] = largest
        else:
            share[stack[i]] = 1.0
    for word in range(len(share)):
        if share[word] * 2.0**32 > _ALWAYS - 0.5:
            alias[word] = word


def keep_thresholds(counts: Array, sample: float) -> Array:
    """Return the thresholds of subsampling, ALWAYS for words that are always kept."""
    expected = sample * counts.sum(dtype=np.float64) / np.maximum(counts, 1)
    chance = np.sqrt(expected) + expected
    thresholds: Array = np.minimum(np.rint(chance * 2.0**32), ALWAYS).astype(np.uint32)
    return thresholds
