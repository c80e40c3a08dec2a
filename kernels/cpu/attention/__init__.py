"""Attention over the rows of a block in Numba; names and meaning are naive/attention.py's.

A row's edges are processed once, CHUNK at a time: if a larger score appears, the previous sums are
rescaled. In the backward pass no product of an edge's rows is needed: with ``s`` the slope of
leaky, the sum over c of ``alpha s (factor grad[r] z[c] - dot[r])`` is ``grad[r] (sum of alpha s
factor z[c]) - dot[r] (sum of alpha s)``, so that rows are only summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.activation.exp import exp_in_place, exponential, total_of
from penstock.kernels.cpu.activation.row import dropout_fields, epilogue_pointers, read_only, stride
from penstock.kernels.cpu.attention.back import back_columns, back_rows
from penstock.kernels.cpu.attention.rows import (
    CHUNK,
    add_rows,
    clear,
    drop_weights,
    edge_words,
    next_chunk,
    product,
    score_pointers,
    scores_of,
    size_of_sums,
    spread,
    write_rows,
)
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.gnn_rules import Heads, ScaledCSR


def attend(block: ScaledCSR, z: Array, heads: Heads, out: Array, first: int, last: int) -> None:
    """Write rows ``first .. last`` of the weighted sums to ``out``, and heads.peak and total."""
    _attend(_given(block, z, heads, writes=True), out, first, last)


def attend_back_rows(
    block: ScaledCSR,
    z: Array,
    heads: Heads,
    out: Array,
    grad: Array,
    dot: Array,
    dleft: Array,
    first: int,
    last: int,
) -> None:
    """Write, for rows ``first .. last``, the gradient of heads.left to ``dleft``, (rows, heads)."""
    given = _given(block, z, heads, writes=False)
    back_rows(given, read_only(out, z), read_only(grad, z), dot, dleft, first, last)


def attend_back_columns(
    transpose: ScaledCSR,
    z: Array,
    heads: Heads,
    grad: Array,
    dot: Array,
    dz: Array,
    dright: Array,
    first: int,
    last: int,
) -> None:
    """Write, for columns ``first .. last``, the gradients of z and heads.right."""
    given = _given(transpose, z, heads, writes=False)
    back_columns(given, read_only(grad, z), read_only(dot, z), dz, dright, first, last)


def _given(block: ScaledCSR, z: Array, heads: Heads, *, writes: bool) -> tuple[Any, ...]:
    arrays = (read_only(each, z) for each in (block.indptr, block.indices, z))
    scores = tuple(scores_of(heads, writes=writes))
    return *arrays, scores, tuple(dropout_fields(heads.drop, z))


@entry("out")
def scores(z: Array, vectors: Array, out: Array) -> None:
    """Write each head's product with its vector, (heads, width), at ``out``, (nodes, heads)."""
    heads, width = vectors.shape
    vector = pointer(vectors)
    for node in range(len(z)):
        value = moved(pointer(z), node * stride(z))
        for h in range(heads):
            at = h * width
            out[node, h] = product(moved(value, at), moved(vector, at), width)


@entry("dz", "dvectors")
def scores_back(grad: Array, z: Array, vectors: Array, dz: Array, dvectors: Array) -> None:
    """Add to ``dz`` and ``dvectors`` what ``grad``, of ``scores``' out, gives: (nodes, heads)."""
    heads, width = vectors.shape
    wide = np.zeros(heads * width, np.float64)  # sums over all nodes
    vector, sums = pointer(vectors), pointer(wide)
    for node in range(len(z)):
        value = moved(pointer(z), node * stride(z))
        slope = moved(pointer(dz), node * stride(dz))
        for h in range(heads):
            given = grad[node, h]
            for f in range(h * width, h * width + width):
                slope[f] += given * vector[f]
                sums[f] += given * value[f]
    for h in range(heads):
        for f in range(width):
            dvectors[h, f] += wide[h * width + f]


@njit(cache=True, nogil=True, error_model="numpy")
def _attend(given: Any, out: Array, first: int, last: int) -> None:
    indptr, indices, z, heads, fields = given
    scores, dropout = score_pointers(heads), epilogue_pointers(fields)
    count_heads = scores.heads
    width = z.shape[1] // count_heads
    found, numbers = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.uint64)
    raw = np.empty(count_heads * CHUNK, z.dtype)
    words = np.empty((count_heads + 3) * CHUNK, np.uint32)
    sums = np.empty(size_of_sums(count_heads, width), z.dtype)
    factor = np.empty(count_heads, z.dtype)
    one = dropout.zero + np.int8(1)
    for row in range(first, last):
        left = moved(scores.left, row * scores.strides[0])
        peak = moved(scores.peak, row * scores.strides[2])
        total = moved(scores.total, row * scores.strides[3])
        for h in range(count_heads):
            peak[h], total[h] = -np.inf, 0
        clear(pointer(sums), len(sums))
        at, end, done = indptr[row], indptr[row + 1], False
        while not done:
            count, at, done = next_chunk(
                pointer(indices), at, end, row, pointer(found), pointer(z), stride(z), z.shape[1]
            )
            spread(
                scores.right, scores.strides[1], pointer(found), count, count_heads, pointer(raw)
            )
            per_head = len(sums) // count_heads
            for h in range(count_heads):
                weight = moved(pointer(raw), h * CHUNK)
                highest = _leak(weight, left[h], scores.slope, dropout.zero, peak[h], count)
                if highest > peak[h]:
                    shrink = exponential(peak[h] - highest)
                    peak[h], total[h] = highest, total[h] * shrink
                    for f in range(h * per_head, (h + 1) * per_head):
                        sums[f] *= shrink
                exp_in_place(weight, peak[h], count)
                total[h] += total_of(weight, count)
            if dropout.dropping:
                edge_words(
                    dropout,
                    scores,
                    row,
                    True,
                    pointer(found),
                    count,
                    pointer(numbers),
                    pointer(words),
                )
                drop_weights(dropout, count_heads, pointer(words), count, pointer(raw))
            add_rows(
                pointer(raw),
                pointer(found),
                count,
                pointer(z),
                stride(z),
                count_heads,
                width,
                pointer(sums),
            )
        for h in range(count_heads):
            factor[h] = one / total[h]
        target = moved(pointer(out), row * stride(out))
        write_rows(pointer(sums), pointer(factor), count_heads, width, target)


@njit(cache=True)
def _leak(weight: Any, added: Any, slope: Any, zero: Any, highest: Any, count: Any) -> Any:
    """Turn sums, with ``added`` as one part, into scores, and return the highest."""
    for j in range(count):
        value = weight[j] + added
        weight[j] = value if value > zero else slope * value
    for j in range(count):
        highest = weight[j] if weight[j] > highest else highest
    return highest
