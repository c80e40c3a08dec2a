"""Negatives drawn on the GPU: bit-identical to the other backends."""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch
from penstock.kernels.embed_rules import CHUNK_BITS, NegativePool
from penstock.kernels.streams import Stream

_FILE = "embed/negatives"


def draw_negatives(
    seed: int, number: int, sides: int, chunks: int, count: int, pool: NegativePool
) -> DeviceArray:
    """Return the negatives of a batch: (sides, chunks, count) int32 rows."""
    rows = cp.empty((sides, chunks, count), cp.int32)
    launch(
        _FILE,
        "draw_negatives",
        rows.size,
        np.uint64(seed & (2**64 - 1)),
        np.uint32(Stream.EMBED_NEGATIVE),
        np.uint64(number << CHUNK_BITS),
        np.int64(sides * chunks),
        np.int64(count),
        cp.ascontiguousarray(pool.first, cp.int64),
        cp.ascontiguousarray(pool.start, cp.int64),
        np.int32(len(pool.first)),
        None if pool.chance is None else cp.ascontiguousarray(pool.chance, cp.float32),
        None if pool.other is None else cp.ascontiguousarray(pool.other, cp.int32),
        rows,
    )
    return rows
