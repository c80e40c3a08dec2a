"""Edges in buckets, in Numba; names and meaning are naive/buckets.py's.

Kernels run on one thread and release the GIL: threads count and scatter pieces of the edges, each
piece to its own positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.bucket_rules import (
    BLOCK,
    GROUP,
    IN_BUCKET,
    MIX,
    MULTIPLIERS,
    ROUNDS,
    half_bits,
)
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32, random_words
from penstock.kernels.streams import Stream

_SHUFFLE = int(Stream.EMBED_SHUFFLE)
_FIRST, _SECOND = MULTIPLIERS
_NONE, _NO_WEIGHTS = np.empty(0, np.int32), np.empty(0, np.float32)


def count_edges(
    indptr: Array,
    indices: Array,
    first_row: int,
    starts: Array,
    positions: Array | None,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> Array:
    """Return how many edges of these rows are in each group of each bucket: (n * n * groups,)."""
    counts = np.zeros((len(starts) - 1) ** 2 * groups, np.int64)
    _count_edges(
        indptr,
        indices,
        first_row,
        starts,
        _or_none(positions),
        positions is not None,
        groups,
        np.uint64(seed),
        first_edge,
        counts,
    )
    return counts


def scatter_edges(
    indptr: Array,
    indices: Array,
    relations: Array | None,
    weights: Array | None,
    first_row: int,
    starts: Array,
    positions: Array | None,
    at: Array,
    heads: Array,
    tails: Array,
    relations_out: Array | None,
    weights_out: Array | None,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> None:
    """Write the edges of these rows to their groups, from ``at`` (n * n * groups,) on, in order."""
    _scatter_edges(
        indptr,
        indices,
        _or_none(relations),
        _NO_WEIGHTS if weights is None else weights,
        first_row,
        starts,
        _or_none(positions),
        positions is not None,
        at.copy(),
        heads,
        tails,
        _or_none(relations_out),
        _NO_WEIGHTS if weights_out is None else weights_out,
        groups,
        np.uint64(seed),
        first_edge,
    )


def shuffle_edges(
    heads: Array,
    tails: Array,
    relations: Array | None,
    weights: Array | None,
    seed: int,
    first: int,
) -> None:
    """Shuffle edges in place (Fisher and Yates); ``first`` is the number of the first edge."""
    weights = _NO_WEIGHTS if weights is None else weights
    _shuffle_edges(heads, tails, _or_none(relations), weights, np.uint64(seed), first)


def mix_keys(seed: int, which: int) -> Array:
    """Return the keys of permutation ``which``: (6,) uint64."""
    words = random_words(seed, Stream.EMBED_SHUFFLE, ROUNDS // 2 * which, ROUNDS // 2, MIX).astype(
        np.uint64
    )
    keys: Array = (words[:, 0::2] | words[:, 1::2] << np.uint64(32)).ravel()
    return keys


def permuted(index: int, count: int, keys: Array) -> int:
    """Return the image of ``index`` in the permutation of ``0 .. count - 1`` with these keys."""
    return int(_permuted(np.uint64(index), np.uint64(count), np.uint64(half_bits(count)), keys))


def mix_edges(
    heads: Array,
    tails: Array,
    relations: Array | None,
    weights: Array | None,
    begins: Array,
    offsets: Array,
    head_rows: Array,
    tail_rows: Array,
    keys: Array,
    count: int,
    start: int,
    out: tuple[Array, Array, Array | None, Array | None],
) -> None:
    """Fill ``out`` with positions ``start`` and on of the ``count`` mixed edges of several runs."""
    if len(out[0]):
        _mix_edges(
            heads,
            tails,
            _or_none(relations),
            _NO_WEIGHTS if weights is None else weights,
            begins,
            offsets,
            head_rows,
            tail_rows,
            keys,
            np.uint64(half_bits(count // BLOCK)),
            count // BLOCK,
            start,
            out[0],
            out[1],
            _or_none(out[2]),
            _NO_WEIGHTS if out[3] is None else out[3],
        )


def _or_none(array: Array | None) -> Array:
    return _NONE if array is None else array


@njit(cache=True, inline="always")
def _part_of(place: Any, starts: Array, nodes: int) -> Any:
    # Partitions are nearly equal: the guess is at most one off.
    guess = place * (len(starts) - 1) // nodes
    while place < starts[guess]:
        guess -= 1
    while place >= starts[guess + 1]:
        guess += 1
    return guess


@njit(cache=True, inline="always")
def _group_of(edge: Any, words: Any, groups: int) -> Any:
    a, b, c, d = words
    word = (a if edge & 1 == 0 else b) if edge & 2 == 0 else (c if edge & 1 == 0 else d)
    return np.int64(uint64(word) * uint64(groups) >> uint64(32))


@njit(cache=True, nogil=True)
def _count_edges(
    indptr: Array,
    indices: Array,
    first_row: int,
    starts: Array,
    positions: Array,
    placed: bool,
    groups: int,
    seed: Any,
    first_edge: int,
    counts: Array,
) -> None:
    n, nodes = len(starts) - 1, starts[-1]
    words = philox4x32(seed, _SHUFFLE, first_edge >> 2, GROUP)
    for row in range(len(indptr) - 1):
        if indptr[row] == indptr[row + 1]:
            continue
        node = first_row + row
        head = _part_of(np.int64(positions[node]) if placed else node, starts, nodes)
        for e in range(indptr[row], indptr[row + 1]):
            end = np.int64(indices[e])
            tail = _part_of(np.int64(positions[end]) if placed else end, starts, nodes)
            group = (head * n + tail) * groups
            if groups > 1:
                edge = first_edge + e
                if edge & 3 == 0:
                    words = philox4x32(seed, _SHUFFLE, edge >> 2, GROUP)
                group += _group_of(edge, words, groups)
            counts[group] += 1


@njit(cache=True, nogil=True)
def _scatter_edges(
    indptr: Array,
    indices: Array,
    relations: Array,
    weights: Array,
    first_row: int,
    starts: Array,
    positions: Array,
    placed: bool,
    at: Array,
    heads: Array,
    tails: Array,
    relations_out: Array,
    weights_out: Array,
    groups: int,
    seed: Any,
    first_edge: int,
) -> None:
    n, nodes = len(starts) - 1, starts[-1]
    typed, weighted = len(relations_out) > 0, len(weights_out) > 0
    words = philox4x32(seed, _SHUFFLE, first_edge >> 2, GROUP)
    for row in range(len(indptr) - 1):
        if indptr[row] == indptr[row + 1]:
            continue
        node = first_row + row
        place = np.int64(positions[node]) if placed else node
        head = _part_of(place, starts, nodes)
        head_row = place - starts[head]
        for e in range(indptr[row], indptr[row + 1]):
            end = np.int64(indices[e])
            end_place = np.int64(positions[end]) if placed else end
            tail = _part_of(end_place, starts, nodes)
            group = (head * n + tail) * groups
            if groups > 1:
                edge = first_edge + e
                if edge & 3 == 0:
                    words = philox4x32(seed, _SHUFFLE, edge >> 2, GROUP)
                group += _group_of(edge, words, groups)
            to = at[group]
            heads[to], tails[to] = head_row, end_place - starts[tail]
            if typed:
                relations_out[to] = relations[e]
            if weighted:
                weights_out[to] = weights[e]
            at[group] = to + 1


@njit(cache=True, nogil=True)
def _shuffle_edges(
    heads: Array, tails: Array, relations: Array, weights: Array, seed: Any, first: int
) -> None:
    for i in range(len(heads) - 1, 0, -1):
        a, b, _, _ = philox4x32(seed, _SHUFFLE, first + i, IN_BUCKET)
        # The upper 64 bits of (a, b) * (i + 1), in halves; i + 1 is below 2**63.
        low, half = uint64(0xFFFFFFFF), uint64(32)
        n0, n1 = uint64(i + 1) & low, uint64(i + 1) >> half
        middle = uint64(a) * n0 + (uint64(b) * n0 >> half)
        carry = uint64(b) * n1 + (middle & low)
        j = np.int64(uint64(a) * n1 + (middle >> half) + (carry >> half))
        heads[i], heads[j] = heads[j], heads[i]
        tails[i], tails[j] = tails[j], tails[i]
        if len(relations):
            relations[i], relations[j] = relations[j], relations[i]
        if len(weights):
            weights[i], weights[j] = weights[j], weights[i]


@njit(cache=True, inline="always")
def _permuted(index: Any, count: Any, half: Any, keys: Array) -> Any:
    mask = (uint64(1) << half) - uint64(1)
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            x = (right ^ key) * uint64(_FIRST)
            x = (x ^ x >> uint64(32)) * uint64(_SECOND)
            left, right = right, left ^ (x >> uint64(32) & mask)
        index = left << half | right
        if index < count:
            return index


@njit(cache=True, nogil=True)
def _mix_edges(
    heads: Array,
    tails: Array,
    relations: Array,
    weights: Array,
    begins: Array,
    offsets: Array,
    head_rows: Array,
    tail_rows: Array,
    keys: Array,
    half: Any,
    blocks: int,
    start: int,
    heads_out: Array,
    tails_out: Array,
    relations_out: Array,
    weights_out: Array,
) -> None:
    typed, weighted = len(relations_out) > 0, len(weights_out) > 0
    n = 0
    while n < len(heads_out):
        block, inside = (start + n) // BLOCK, (start + n) % BLOCK
        index = start + n
        if block < blocks:
            moved = _permuted(uint64(block), uint64(blocks), half, keys)
            index = int(moved) * BLOCK + inside
        low, high = 0, len(begins)
        while high - low > 1:
            middle = (low + high) >> 1
            if offsets[middle] <= index:
                low = middle
            else:
                high = middle
        for _ in range(min(BLOCK - inside, len(heads_out) - n)):
            while index >= offsets[low + 1]:
                low += 1
            edge = begins[low] + index - offsets[low]
            heads_out[n] = heads[edge] + head_rows[low]
            tails_out[n] = tails[edge] + tail_rows[low]
            if typed:
                relations_out[n] = relations[edge]
            if weighted:
                weights_out[n] = weights[edge]
            n += 1
            index += 1
