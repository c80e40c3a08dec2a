"""R-MAT in Numba; names and meaning are naive/rmat.py's.

Edges are drawn in tiles, so that the inner loops run over neighbouring edges and compile to vector
instructions: five times as fast as one edge at a time. Kernels run on one thread and release the
GIL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.philox import philox4x32, uniform
from penstock.kernels.generate_rules import LEVELS, below, thresholds
from penstock.kernels.streams import Stream

__all__ = ["below", "edges", "mark_ends", "relations", "thresholds", "weights"]

_TILE = 256
_EDGE, _WEIGHT, _RELATION = (
    int(s) for s in (Stream.RMAT_EDGE, Stream.RMAT_WEIGHT, Stream.RMAT_RELATION)
)


def edges(
    seed: int, scale: int, thresholds: Array, first: int, count: int, names: Array | None = None
) -> tuple[Array, Array]:
    """Return edges ``first .. first + count`` of the endless edge list: two (count,) int32."""
    a, ab, abc = (np.uint32(t) for t in thresholds)
    names = np.empty(0, np.int32) if names is None else names
    sources, targets = np.empty(count, np.int32), np.empty(count, np.int32)
    _edges(np.uint64(seed), scale, a, ab, abc, first, names, sources, targets)
    return sources, targets


@njit(cache=True, nogil=True)
def _edges(
    seed: int,
    scale: int,
    a: int,
    ab: int,
    abc: int,
    first: int,
    names: Array,
    sources: Array,
    targets: Array,
) -> None:
    steps = (scale + LEVELS - 1) // LEVELS
    # Whole draws are used; levels beyond ``scale`` are dropped at the end.
    extra = uint32(steps * LEVELS - scale)
    words = np.empty((4, _TILE), np.uint32)
    u, v = np.empty(_TILE, np.uint32), np.empty(_TILE, np.uint32)
    for start in range(0, len(sources), _TILE):
        u[:] = 0
        v[:] = 0
        for step in range(steps):
            for i in range(_TILE):
                which = uint64(first) + uint64(start + i)
                words[0, i], words[1, i], words[2, i], words[3, i] = philox4x32(
                    seed, _EDGE, which, step
                )
            for word in range(4):
                for half in range(2):
                    for i in range(_TILE):
                        bits = (words[word, i] >> uint32(16 * half)) & uint32(0xFFFF)
                        down = uint32(bits >= ab)
                        right = uint32(bits >= a) ^ down ^ uint32(bits >= abc)
                        u[i] = uint32(u[i] << uint32(1)) | down
                        v[i] = uint32(v[i] << uint32(1)) | right
        count = min(_TILE, len(sources) - start)
        if len(names):
            for i in range(count):
                sources[start + i] = names[u[i] >> extra]
                targets[start + i] = names[v[i] >> extra]
        else:
            for i in range(count):
                sources[start + i] = u[i] >> extra
                targets[start + i] = v[i] >> extra


def weights(
    seed: int, sources: Array, targets: Array, low: float, high: float, *, ordered: bool
) -> Array:
    """Return a weight in [low, high) for each pair of ends: (m,) float32."""
    drawn: Array = _weights(
        np.uint64(seed), sources, targets, float(low), float(high), below(high), ordered
    )
    return drawn


@njit(cache=True, inline="always")
def _word(seed: Any, stream: Any, source: Any, target: Any, ordered: Any) -> Any:
    first, second = uint64(uint32(source)), uint64(uint32(target))
    if not ordered:
        first, second = min(first, second), max(first, second)
    return philox4x32(seed, stream, first << uint64(32) | second, 0)[0]


@njit(cache=True, nogil=True)
def _weights(
    seed: int, sources: Array, targets: Array, low: float, high: float, top: float, ordered: bool
) -> Array:
    drawn = np.empty(len(sources), np.float32)
    for i in range(len(sources)):
        share = np.float64(uniform(_word(seed, _WEIGHT, sources[i], targets[i], ordered)))
        weight = np.float32(low + share * (high - low))
        drawn[i] = weight if weight < top else top
    return drawn


@entry()
def relations(seed: uint64, sources: Array, targets: Array, count: int, ordered: bool) -> Array:
    """Return a relation below ``count`` for each pair of ends: (m,) int32."""
    drawn = np.empty(len(sources), np.int32)
    for i in range(len(sources)):
        word = uint64(_word(seed, _RELATION, sources[i], targets[i], ordered))
        drawn[i] = (word * uint64(count)) >> uint64(32)
    return drawn


@entry("touched")
def mark_ends(sources: Array, targets: Array, touched: Array, keep_loops: bool) -> None:
    """Set ``touched`` at both ends of every edge, self loops only if they are kept."""
    for i in range(len(sources)):
        if keep_loops or sources[i] != targets[i]:
            touched[sources[i]] = True
            touched[targets[i]] = True
