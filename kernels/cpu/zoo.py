"""A zoo of small graphs in Numba; names and meaning are naive/zoo.py's.

A graph is drawn into a matrix of bits small enough for the cache, which drops duplicates and gives
sorted rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import uint32, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.generate_rules import LEVELS, PATIENCE, QUADRANTS, RANDOM, RMAT
from penstock.kernels.streams import Stream

__all__ = ["PATIENCE", "RANDOM", "RMAT", "edge_counts", "edges"]

_SHAPE, _EDGE = int(Stream.ZOO_SHAPE), int(Stream.ZOO_EDGE)
_TILE = 64  # divides PATIENCE, so that a tile is drawn one way
_A, _AB, _ABC = (int(threshold) for threshold in QUADRANTS)


@entry()
def edge_counts(seed: uint64, sizes: Array, least: int, most: int, first: int) -> Array:
    """Return the number of edges of graphs ``first .. first + n``: (n,) int64."""
    counts = np.empty(len(sizes), np.int64)
    for i in range(len(sizes)):
        word = np.int64(philox4x32(seed, _SHAPE, uint64(first) + uint64(i), 0)[0])
        degree = (least << 16) + ((word * ((most - least) << 16)) >> 32)
        size = sizes[i]
        counts[i] = min((size * degree) >> 17, size * (size - 1) // 2)
    return counts


def edges(seed: int, sizes: Array, counts: Array, kinds: Array, first: int) -> tuple[Array, Array]:
    """Return graphs ``first .. first + n`` side by side: degrees (nodes,), targets (arcs,)."""
    degrees = np.zeros(int(sizes.sum()), np.int32)
    targets = np.empty(2 * int(counts.sum()), np.int32)
    _edges(np.uint64(seed), sizes, counts, kinds, first, degrees, targets)
    return degrees, targets


@njit(cache=True)
def _random_tile(seed: int, graph: int, draw: int, size: int, us: Array, vs: Array) -> None:
    for i in range(_TILE):
        a, b, _, _ = philox4x32(seed, _EDGE, graph, 2 * (draw + i))
        us[i] = (uint64(a) * uint64(size)) >> uint64(32)
        vs[i] = (uint64(b) * uint64(size)) >> uint64(32)


@njit(cache=True)
def _rmat_tile(
    seed: int, graph: int, draw: int, scale: int, words: Array, us: Array, vs: Array
) -> None:
    # Inner loops run over draws, as in cpu/rmat.py, so that they vectorise.
    steps = (scale + LEVELS - 1) // LEVELS
    extra = uint32(LEVELS * steps - scale)
    us[:] = 0
    vs[:] = 0
    for step in range(steps):
        for i in range(_TILE):
            words[0, i], words[1, i], words[2, i], words[3, i] = philox4x32(
                seed, _EDGE, graph, 2 * (draw + i) + step
            )
        for word in range(4):
            for half in range(2):
                for i in range(_TILE):
                    bits = (words[word, i] >> uint32(16 * half)) & uint32(0xFFFF)
                    down = uint32(bits >= uint32(_AB))
                    right = uint32(bits >= uint32(_A)) ^ down ^ uint32(bits >= uint32(_ABC))
                    us[i] = uint32(us[i] << uint32(1)) | down
                    vs[i] = uint32(vs[i] << uint32(1)) | right
    for i in range(_TILE):
        us[i] >>= extra
        vs[i] >>= extra


@njit(cache=True, nogil=True)
def _edges(
    seed: int, sizes: Array, counts: Array, kinds: Array, first: int, degrees: Array, targets: Array
) -> None:
    largest = sizes.max()
    matrix = np.zeros(largest * ((largest + 63) // 64), np.uint64)
    words = np.empty((4, _TILE), np.uint32)
    us, vs = np.empty(_TILE, np.uint32), np.empty(_TILE, np.uint32)
    node, arc = 0, 0
    one, six, low6 = uint64(1), uint64(6), uint64(63)
    for g in range(len(sizes)):
        size, count, graph = sizes[g], counts[g], uint64(first) + uint64(g)
        across = (size + 63) // 64
        scale = 0
        while (1 << scale) < size:
            scale += 1
        made, draw, patience = 0, 0, (PATIENCE * count if kinds[g] == RMAT else 0)
        while made < count:
            at = draw % _TILE
            if at == 0 and draw < patience:
                _rmat_tile(seed, graph, draw, scale, words, us, vs)
            elif at == 0:
                _random_tile(seed, graph, draw, size, us, vs)
            u, v = us[at], vs[at]
            draw += 1
            there = np.int64(u) * across + np.int64(uint64(v) >> six)
            bit = one << (uint64(v) & low6)
            if u == v or matrix[there] & bit:
                continue
            matrix[there] |= bit
            back = np.int64(v) * across + np.int64(uint64(u) >> six)
            matrix[back] |= one << (uint64(u) & low6)
            made += 1
        for row in range(size):
            begin = arc
            for column in range(across):
                bits = matrix[row * across + column]
                matrix[row * across + column] = 0
                while bits:
                    lowest = bits & (~bits + one)
                    targets[arc] = 64 * column + _log2(lowest)
                    arc += 1
                    bits ^= lowest
            degrees[node] = arc - begin
            node += 1


@njit(cache=True, inline="always")
def _log2(bit: Any) -> Any:
    # The exponent of a power of two, from its floating-point bits.
    return math.frexp(np.float64(bit))[1] - 1
