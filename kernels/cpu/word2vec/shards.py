"""What shards have changed, on cores: pieces of tables that stay in caches, a thread each.

It is little beside training, and memory's rate is what it takes: NumPy's passes will do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import Exchange


def changes(base: Array, copies: Sequence[Array]) -> Array:
    """Return the sum of what copies of vectors have changed: (rows, dimension) float32."""
    with _diverging():
        return naive.changes(base, copies)


def mean_square(weights: Array, vectors: Array) -> np.float64:
    """Return the mean square of vectors, by how often each is multiplied with: (rows,) float32."""
    squares = weights.copy()
    with _diverging():
        for at in range(0, len(vectors), _ROWS):  # without a second table
            squares[at : at + _ROWS] *= (vectors[at : at + _ROWS] ** 2).sum(axis=1)
        return np.float64(squares.sum())


def apply_changes(
    base: Array,
    copies: Sequence[Array],
    moved: Array,
    pairs: Array,
    square: np.float64,
    exchange: Exchange,
) -> None:
    """Move vectors by a share of what shards have changed, and start the copies from there.

    moved   the changes of all shards; what is in it afterwards is nobody's
    pairs   (rows,) float32: how many pairs a word of the corpus brings to each row
    square  of the other vectors: mean_square
    """
    with _diverging():
        naive.apply_changes(base, copies, moved, pairs, square, exchange)


_ROWS = 1 << 14


def _diverging() -> np.errstate:
    """What diverged is not a number: the losses say so, and training stops."""
    return np.errstate(invalid="ignore", over="ignore")
