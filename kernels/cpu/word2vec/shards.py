"""Changes of shards, on the CPU; names and meaning are naive/word2vec.py's.

They cost little next to training, and are bound by memory: NumPy passes over rows that stay in
caches suffice, and the caller gives each to a thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.kernels.word2vec_rules import FURTHEST, LEAST_WAY, Exchange

_ROWS = 1 << 14  # rows whose squares are computed at a time


def changes(base: Array, copies: Sequence[Array]) -> Array:
    """Return the sum of the changes of the copies of vectors: (rows, dimension) float32."""
    with _diverging():
        moved: Array = copies[0] - base
        for copy in copies[1:]:
            moved += copy - base
    return moved


def mean_square(weights: Array, vectors: Array) -> np.float64:
    """Return the mean square of vectors, weighted by ``weights``: (rows,) float32."""
    squares = weights.copy()
    with _diverging():
        for at in range(0, len(vectors), _ROWS):
            rows = vectors[at : at + _ROWS]
            squares[at : at + _ROWS] *= (rows * rows).sum(axis=1)
        return np.float64(squares.sum())


def apply_changes(
    base: Array,
    copies: Sequence[Array],
    moved: Array,
    pairs: Array,
    square: np.float64,
    exchange: Exchange,
) -> None:
    """Move vectors by a share of the shards' changes, and start the copies from there."""
    count, least = exchange.count, np.float32(LEAST_WAY)
    with _diverging():
        most = np.maximum(pairs * np.float32(exchange.steepest(square)), least)
        way = np.maximum(most / base.shape[1], least)
        share = np.expm1(-count * way) / (count * np.expm1(-way))
        share = np.minimum(share, (-FURTHEST / count) / np.expm1(-most))
        moved *= share.reshape(-1, 1)
        base += moved
    for copy in copies:
        copy[...] = base


def _diverging() -> np.errstate:
    """Ignore divergence: the losses show it, and training stops."""
    return np.errstate(invalid="ignore", over="ignore")
