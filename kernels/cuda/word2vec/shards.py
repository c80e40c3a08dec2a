"""Changes of shards, on the GPU: one pass over the vectors each (shards.cu), without waiting."""

from __future__ import annotations

from collections.abc import Sequence

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch_blocks, processors
from penstock.kernels.word2vec_rules import FURTHEST, LEAST_WAY, Exchange

_FILE = "word2vec/shards"
_THREADS = 256  # of a block: square_sums has 8 warps
_BLOCKS = 8  # per multiprocessor: all threads that it holds
_LANES = 32


def changes(base: DeviceArray, copies: Sequence[DeviceArray]) -> DeviceArray:
    """Return the sum of the changes of the copies of vectors: (rows, dimension) float32."""
    moved = cp.empty_like(base)
    for number, copy in enumerate(copies):
        vec = _columns_together(base.size, base, copy, moved)
        size = base.size // vec
        launch_blocks(
            _FILE,
            f"changes<{vec}>",
            _blocks(size),
            _THREADS,
            base,
            copy,
            np.int64(size),
            np.int32(number > 0),
            moved,
        )
    return moved


def mean_square(weights: DeviceArray, vectors: DeviceArray) -> DeviceArray:
    """Return the mean square of vectors, weighted by ``weights``: (rows,) float32.

    It is () float64.
    """
    rows, dimension = vectors.shape
    blocks = _blocks(rows * _LANES)
    sums = cp.empty(blocks, cp.float64)
    launch_blocks(
        _FILE,
        "square_sums",
        blocks,
        _THREADS,
        weights,
        vectors,
        np.int64(rows),
        np.int32(dimension),
        sums,
    )
    return sums.sum()


def apply_changes(
    base: DeviceArray,
    copies: Sequence[DeviceArray],
    moved: DeviceArray,
    pairs: DeviceArray,
    square: DeviceArray,
    exchange: Exchange,
) -> None:
    """Move vectors by a share of the shards' changes, and start the copies from there."""
    rows, dimension = base.shape
    vec = _columns_together(dimension, base, copies[0], moved)
    launch_blocks(
        _FILE,
        f"apply_changes<{vec}>",
        _blocks(rows * _LANES),
        _THREADS,
        base,
        copies[0],
        moved,
        pairs,
        square,
        np.float64(exchange.steepest(1.0)),
        np.int32(exchange.count),
        np.float32(FURTHEST),
        np.float32(LEAST_WAY),
        np.int64(rows),
        np.int32(dimension // vec),
    )
    for copy in copies[1:]:
        copy[...] = base


def _columns_together(count: int, *arrays: DeviceArray) -> int:
    aligned = not count % 4 and not any(int(array.data.ptr) % 16 for array in arrays)
    return 4 if aligned else 1


def _blocks(threads: int) -> int:
    most = processors() * _BLOCKS
    return max(1, min(-(-threads // _THREADS), most))
