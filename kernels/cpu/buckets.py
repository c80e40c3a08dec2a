"""Edges in buckets, in Numba; names and meaning are naive/buckets.py's.

Kernels run on one thread and release the GIL: threads count and scatter pieces of the edges, each
piece to its own positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.bucket_rules import (
    BLOCK,
    GROUP,
    IN_BUCKET,
    MIX,
    MULTIPLIERS,
    ROUNDS,
    Columns,
    Runs,
    half_bits,
)
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32, random_words
from penstock.kernels.streams import Stream

_SHUFFLE = int(Stream.EMBED_SHUFFLE)
_FIRST, _SECOND = MULTIPLIERS
_NONE, _NO_WEIGHTS = np.empty(0, np.int32), np.empty(0, np.float32)


def count_edges(
    rows: CSR,
    starts: Array,
    positions: Array | None,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> Array:
    """Return how many edges of these rows are in each group of each bucket: (n * n * groups,)."""
    counts = np.zeros((len(starts) - 1) ** 2 * groups, np.int64)
    _count_edges(
        rows.indptr,
        rows.indices,
        rows.first_row,
        starts,
        _NONE if positions is None else positions,
        positions is not None,
        groups,
        np.uint64(seed),
        first_edge,
        counts,
    )
    return counts


def scatter_edges(
    rows: CSR,
    starts: Array,
    positions: Array | None,
    at: Array,
    out: Columns,
    groups: int = 1,
    seed: int = 0,
    first_edge: int = 0,
) -> None:
    """Write the edges of these rows to their groups, from ``at`` (n * n * groups,) on, in order."""
    _scatter_edges(
        rows.indptr,
        rows.first_row,
        _whole((rows.indices, rows.indices, rows.relations, rows.weights))[1:],
        starts,
        _NONE if positions is None else positions,
        positions is not None,
        at.copy(),
        _whole(out),
        groups,
        np.uint64(seed),
        first_edge,
    )


def shuffle_edges(edges: Columns, seed: int, first: int) -> None:
    """Shuffle edges in place (Fisher and Yates); ``first`` is the number of the first edge."""
    _shuffle_edges(_whole(edges), np.uint64(seed), first)


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


def mix_edges(edges: Columns, runs: Runs, count: int, start: int, out: Columns) -> None:
    """Fill ``out`` with positions ``start`` and on of the ``count`` mixed edges of several runs."""
    if len(out[0]):
        blocks = count // BLOCK
        half = np.uint64(half_bits(blocks))
        _mix_edges(_whole(edges), tuple(runs), half, blocks, start, _whole(out))


def _whole(columns: Columns) -> tuple[Any, ...]:
    """Return columns with empty arrays for None."""
    heads, tails, relations, weights = columns
    found = heads, tails, _NONE if relations is None else relations
    return *found, _NO_WEIGHTS if weights is None else weights


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
    first_row: int,
    columns: Any,
    starts: Array,
    positions: Array,
    placed: bool,
    at: Array,
    out: Any,
    groups: int,
    seed: Any,
    first_edge: int,
) -> None:
    indices, relations, weights = columns
    heads, tails, relations_out, weights_out = out
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
def _shuffle_edges(edges: Any, seed: Any, first: int) -> None:
    heads, tails, relations, weights = edges
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
def _mix_edges(edges: Any, runs: Any, half: Any, blocks: int, start: int, out: Any) -> None:
    heads, tails, relations, weights = edges
    begins, offsets, head_rows, tail_rows, keys = runs
    heads_out, tails_out, relations_out, weights_out = out
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
