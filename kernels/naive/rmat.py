"""R-MAT (Chakrabarti et al., SDM 2004): the reference, in plain NumPy.

Edge i chooses a quadrant of the adjacency matrix ``scale`` times, by comparing 16 random bits with
three thresholds; as integers, the comparisons are the same on every machine. Other draws for an
edge (weight, relation) depend only on its two ends, so that duplicates, the two directions of an
undirected edge, and any order of drawing agree.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.generate_rules import LEVELS, below
from penstock.kernels.naive.philox import philox4x32, uniform
from penstock.kernels.streams import Stream


def edges(
    seed: int, scale: int, thresholds: Array, first: int, count: int, names: Array | None = None
) -> tuple[Array, Array]:
    """Return edges ``first .. first + count`` of the endless edge list: two (count,) int32.

    thresholds  (3,) uint32, from ``thresholds``
    names       (2**scale,) int32 the id of each matrix row, or None for its number
    """
    which = np.arange(first, first + count, dtype=np.uint64)
    source, target = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for level in range(scale):
        word = philox4x32(seed, Stream.RMAT_EDGE, which, level // LEVELS)[level % LEVELS // 2]
        bits = word >> np.uint32(16) if level % 2 else word & np.uint32(0xFFFF)
        quadrant = np.sum(bits[:, None] >= thresholds, axis=1)
        source = 2 * source + quadrant // 2
        target = 2 * target + quadrant % 2
    if names is not None:
        return names[source], names[target]
    return source.astype(np.int32), target.astype(np.int32)


def weights(
    seed: int, sources: Array, targets: Array, low: float, high: float, *, ordered: bool
) -> Array:
    """Return a weight in [low, high) for each pair of ends: (m,) float32.

    With ``ordered`` the two directions of a pair have separate weights.
    """
    share = uniform(_words(seed, Stream.RMAT_WEIGHT, sources, targets, ordered)).astype(np.float64)
    weight = (low + share * (high - low)).astype(np.float32)
    return np.minimum(weight, below(high))


def relations(seed: int, sources: Array, targets: Array, count: int, *, ordered: bool) -> Array:
    """Return a relation below ``count`` for each pair of ends: (m,) int32."""
    word = _words(seed, Stream.RMAT_RELATION, sources, targets, ordered).astype(np.uint64)
    return ((word * np.uint64(count)) >> np.uint64(32)).astype(np.int32)


def _words(seed: int, stream: int, sources: Array, targets: Array, ordered: bool) -> Array:
    first = sources if ordered else np.minimum(sources, targets)
    second = targets if ordered else np.maximum(sources, targets)
    which = first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64)
    return philox4x32(seed, stream, which, 0)[0]


def mark_ends(sources: Array, targets: Array, touched: Array, *, keep_loops: bool) -> None:
    """Set ``touched`` at both ends of every edge, self loops only if they are kept."""
    kept = np.ones(len(sources), bool) if keep_loops else sources != targets
    touched[sources[kept]] = True
    touched[targets[kept]] = True
