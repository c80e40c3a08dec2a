"""Attention's edges in chunks: the rows that they read, their weights, and weighted sums of rows.

Weights of CHUNK edges are kept per head, so that loops over edges are vectorised; memory does not
grow with the number of edges. Sums are kept in tiles per head; the last tile ends with the head and
may overlap the one before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import read_only, stride_of
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.vector import (
    lanes,
    load,
    moved,
    plus_times,
    pointers,
    prefetch,
    store,
    times,
    zeros,
)
from penstock.kernels.gnn_rules import Heads

CHUNK = 64


class Scores(NamedTuple):
    """Heads for a kernel, all arrays or all pointers; dropout is separate."""

    left: Any
    right: Any
    peak: Any
    total: Any
    strides: Any  # of these four
    heads: int
    slope: Any
    nodes: Any


def scores_of(heads: Heads, *, writes: bool) -> Scores:
    """Return heads for a kernel; ``writes``: it writes peaks and totals."""
    like = heads.left
    peak, total = heads.peak, heads.total
    if not writes:
        peak, total = read_only(peak, like), read_only(total, like)
    return Scores(
        read_only(heads.left, like),
        read_only(heads.right, like),
        peak,
        total,
        tuple(stride_of(each) for each in (heads.left, heads.right, heads.peak, heads.total)),
        heads.count,
        like.dtype.type(heads.slope),
        np.uint64(0 if heads.drop is None else heads.drop.nodes),
    )


@njit(cache=True, inline="always")
def score_pointers(given: Any) -> Any:
    """Return Scores, given as a plain tuple, as pointers; valid while the arrays live."""
    return pointers(Scores(*given))


@njit(cache=True)
def next_chunk(
    indices: Any, at: Any, end: Any, itself: Any, found: Any, x: Any, x_stride: Any, width: Any
) -> tuple[Any, Any, Any]:
    """Find the rows that edges ``at .. end`` read, at most CHUNK, and prefetch their rows of ``x``.

    ``itself``, if not below 0, is found once, at the end. Returns the number found, ``at`` for the
    next call, and whether all are done.
    """
    count = 0
    while at < end and count < CHUNK:
        other = np.int64(indices[at])
        at += 1
        if other != itself:
            found[count] = other
            count += 1
    done = at >= end and count < CHUNK  # so one more fits
    if done and itself >= 0:
        found[count] = itself
        count += 1
    line = zeros(x, 16)
    for j in range(count):
        for begin in range(0, width, 16):
            prefetch(line, x, found[j] * x_stride + begin)
    return count, at, done


@njit(cache=True)
def edge_words(
    dropout: Any,
    scores: Any,
    fixed: Any,
    fixed_reads: Any,
    found: Any,
    count: Any,
    numbers: Any,
    words: Any,
) -> None:
    """Write the random words of edges between one node and those found, per head.

    ``fixed_reads``: whether ``fixed`` reads the others or is read by them. ``numbers`` holds a
    chunk.
    """
    groups = (scores.heads + 3) // 4
    mine = np.uint64(dropout.ids[fixed])
    for j in range(count):
        theirs = np.uint64(dropout.ids[found[j]])
        numbers[j] = mine * scores.nodes + theirs if fixed_reads else theirs * scores.nodes + mine
    # A separate loop, which vectorises draws.
    seed, stream = dropout.seed, dropout.stream
    for group in range(groups):
        step = np.uint64(dropout.step) * np.uint64(groups) + np.uint64(group)
        first = moved(words, 4 * group * CHUNK)
        for j in range(count):
            a, b, c, d = philox4x32(seed, stream, numbers[j], step)
            first[j], first[CHUNK + j] = a, b
            first[2 * CHUNK + j], first[3 * CHUNK + j] = c, d


@njit(cache=True)
def drop_weights(dropout: Any, heads: Any, words: Any, count: Any, weight: Any) -> None:
    """Drop weights by their words, and scale the others."""
    zero, scale, below = dropout.zero, dropout.scale, dropout.below
    for h in range(heads):
        value, word = moved(weight, h * CHUNK), moved(words, h * CHUNK)
        for j in range(count):
            value[j] *= scale if word[j] >= below else zero


@njit(cache=True)
def spread(values: Any, values_stride: Any, found: Any, count: Any, heads: Any, out: Any) -> None:
    """Write the values of those found per head: each head's are contiguous."""
    line = zeros(values, 8)
    for j in range(count):
        prefetch(line, values, found[j] * values_stride)
    for h in range(heads):
        head, value = moved(out, h * CHUNK), moved(values, h)
        for j in range(count):
            head[j] = value[found[j] * values_stride]


@njit(cache=True)
def clear(numbers: Any, count: Any) -> None:
    """Set ``count`` numbers to 0."""
    for i in range(count):
        numbers[i] = 0


@njit(cache=True)
def size_of_tile(width: Any) -> Any:
    """Return the size of the tiles for heads of a width."""
    return 8 if width >= 8 else 1


@njit(cache=True)
def size_of_sums(heads: Any, width: Any) -> Any:
    """Return the total size of a row's tiles."""
    size = size_of_tile(width)
    return heads * ((width + size - 1) // size) * size


@njit(cache=True)
def add_rows(
    weight: Any, found: Any, count: Any, x: Any, x_stride: Any, heads: Any, width: Any, sums: Any
) -> None:
    """Add the weighted rows of those found to the tiles of ``sums``."""
    if size_of_tile(width) == 8:
        _add_tiles(zeros(x, 8), weight, found, count, x, x_stride, heads, width, sums)
    else:
        _add_tiles(zeros(x, 1), weight, found, count, x, x_stride, heads, width, sums)


@njit(cache=True)
def _add_tiles(
    tile: Any,
    weight: Any,
    found: Any,
    count: Any,
    x: Any,
    x_stride: Any,
    heads: Any,
    width: Any,
    sums: Any,
) -> None:
    slot = 0
    for h in range(heads):
        for begin in range(0, width, lanes(tile)):
            at = h * width + min(begin, width - lanes(tile))
            total = load(tile, sums, slot)
            for j in range(count):
                value = load(tile, x, found[j] * x_stride + at)
                total = plus_times(total, weight[h * CHUNK + j], value)
            store(total, sums, slot)
            slot += lanes(tile)


@njit(cache=True)
def write_rows(sums: Any, factor: Any, heads: Any, width: Any, out: Any) -> None:
    """Write the tiles of ``sums``, each head's times its factor, as a row."""
    if size_of_tile(width) == 8:
        _write_tiles(zeros(out, 8), sums, factor, heads, width, out)
    else:
        _write_tiles(zeros(out, 1), sums, factor, heads, width, out)


@njit(cache=True)
def _write_tiles(tile: Any, sums: Any, factor: Any, heads: Any, width: Any, out: Any) -> None:
    slot = 0
    for h in range(heads):
        for begin in range(0, width, lanes(tile)):
            at = h * width + min(begin, width - lanes(tile))
            store(times(load(tile, sums, slot), factor[h]), out, at)
            slot += lanes(tile)


# Sums over a head may be in any order, so that they vectorise.
@njit(cache=True, fastmath={"reassoc", "contract"})
def product(one: Any, other: Any, width: Any) -> Any:
    """Return the sum of products of two rows of at least one number."""
    total = one[0] * other[0]
    for f in range(1, width):
        total += one[f] * other[f]
    return total
