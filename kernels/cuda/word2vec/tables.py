"""Preparation of training: initial vectors, counts, and tables of the vocabulary."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cpu.word2vec import tables as cpu
from penstock.kernels.cuda.module import launch
from penstock.kernels.streams import Stream


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
    """Return the CPU's alias table, which draws words in proportion to ``counts**0.75``."""
    chance, alias = cpu.noise_table(cp.asnumpy(counts))
    return cp.asarray(chance), cp.asarray(alias)


def keep_thresholds(counts: Any, sample: float) -> DeviceArray:
    """Return the thresholds of subsampling, ALWAYS for words that are always kept."""
    return cp.asarray(cpu.keep_thresholds(cp.asnumpy(counts), sample))
