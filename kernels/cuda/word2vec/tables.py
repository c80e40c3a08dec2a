"""What stands before training: start vectors, and tables of the vocabulary."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cpu.word2vec import keep_thresholds as keep_on_host
from penstock.kernels.cpu.word2vec import noise_table as noise_on_host
from penstock.kernels.cuda.module import launch
from penstock.kernels.streams import Stream


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

    It is made on the host: one slot follows from another.

    counts (V,) int64, not all 0 -> chance (V,) uint32, alias (V,) int32: see Noise
    """
    chance, alias = noise_on_host(cp.asnumpy(counts))
    return cp.asarray(chance), cp.asarray(alias)


def keep_thresholds(counts: Any, sample: float) -> DeviceArray:
    """Return the thresholds of subsampling, ALWAYS for words that are never left out.

    counts (V,) int64, sample above 0 -> (V,) uint32
    """
    return cp.asarray(keep_on_host(cp.asnumpy(counts), sample))
