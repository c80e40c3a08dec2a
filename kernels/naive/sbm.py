"""Stochastic block model: the reference for its edges and features, in NumPy.

Positions are numbered block after block. Row u draws its neighbours below u, first within its
block, then before it, each by geometric skips, so that the work is proportional to the number of
edges and every pair is an independent coin toss. Logarithms use exactly rounded operations only, so
that the coins are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.generate_rules import CENTRES, DEVIATION, LN2, MEAN, OUTSIDE
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream


def log(x: Any) -> Any:
    """Return the natural logarithm of x > 0 to about 1e-16, the same bits on every machine."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < 0.7071067811865476
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    exponent = exponent - small
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.zeros_like(s)
    for k in range(23, 0, -2):
        series = series * square + 1.0 / k
    return exponent * LN2 + 2.0 * s * series


def edges(
    seed: int, block_starts: Array, log_inside: float, log_outside: float, first: int, count: int
) -> tuple[Array, Array]:
    """Return the edges of rows ``first .. first + count`` to positions below: two (m,) int32.

    block_starts  (blocks + 1,) int64, first position of each block, then the number of nodes
    log_inside    log(1 - p) of an edge within a block; 0 for no edges, -inf for all
    log_outside   the same for an edge between blocks
    """
    sources, targets = [], []
    for u in range(first, first + count):
        block = int(np.searchsorted(block_starts, u, side="right")) - 1
        begin = int(block_starts[block])
        for low, high, scale, base in (
            (begin, u, log_inside, 0),
            (0, begin, log_outside, OUTSIDE),
        ):
            if scale == 0.0:
                continue
            at, draw = low, 0
            while at < high:
                word = philox4x32(seed, Stream.SBM_EDGE, u, base + draw // 4)[draw % 4]
                skip = log((float(word) + 0.5) * 2.0**-32) / scale
                if skip >= high - at:
                    break
                at += int(skip)
                sources.append(u)
                targets.append(at)
                at, draw = at + 1, draw + 1
    return np.array(sources, np.int32), np.array(targets, np.int32)


def normals(seed: int, first: int, count: int, width: int) -> Array:
    """Return approximately normal numbers, mean 0 and deviation 1: (count, width) float32.

    Two columns come from one Philox draw, each from the sum of four 16-bit numbers.
    """
    which = (np.arange(count, dtype=np.uint64) + np.uint64(first))[:, None]
    steps = np.arange((width + 1) // 2)
    words = np.stack(philox4x32(seed, Stream.SBM_FEATURE, which, steps), axis=-1)
    halves = (words & np.uint32(0xFFFF)) + (words >> np.uint32(16))
    pairs = np.stack(
        [halves[..., 0] + halves[..., 1], halves[..., 2] + halves[..., 3]], axis=-1
    ).reshape(count, -1)[:, :width]
    return ((pairs.astype(np.float64) - MEAN) / DEVIATION).astype(np.float32)


def dense(seed: int, labels: Array, blocks: int, width: int, noise: float, first: int) -> Array:
    """Return the centre of each node's block plus noise: (n, width) float32.

    labels  (n,) block of nodes ``first .. first + n``
    """
    centres = normals(seed, CENTRES, blocks, width)
    shaken = normals(seed, first, len(labels), width) * np.float32(noise)
    moved: Array = centres[labels] + shaken
    return moved


def sparse(
    seed: int, labels: Array, blocks: int, width: int, words: int, topic: int, first: int
) -> tuple[Array, Array]:
    """Return each node's bag of words as CSR: indptr (n + 1,) int64, indices (m,) int32.

    ``words`` are drawn for each node, repeated ones dropped; with a chance of ``topic``
    in 2**32 one comes from the block's own share of the columns.
    """
    indptr, rows = [0], []
    for row, label in enumerate(labels.tolist()):
        a, b, _, _ = philox4x32(seed, Stream.SBM_FEATURE, first + row, np.arange(words))
        own = a < np.uint64(topic)
        low = np.where(own, label * width // blocks, 0)
        high = np.where(own, (label + 1) * width // blocks, width)
        bag = np.unique(low + ((b.astype(np.int64) * (high - low)) >> 32))
        rows.append(bag.astype(np.int32))
        indptr.append(indptr[-1] + len(bag))
    return np.array(indptr, np.int64), np.concatenate([np.empty(0, np.int32), *rows])
