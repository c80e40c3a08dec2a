"""The backward pass of attention, which only sums rows (see __init__.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.exp import exp_in_place, total_of
from penstock.kernels.cpu.activation.row import epilogue_pointers, stride
from penstock.kernels.cpu.attention.rows import (
    CHUNK,
    add_rows,
    clear,
    drop_weights,
    edge_words,
    next_chunk,
    product,
    score_pointers,
    size_of_sums,
    spread,
    write_rows,
)
from penstock.kernels.cpu.vector import moved, pointer


@njit(cache=True, nogil=True, error_model="numpy")
def back_rows(
    given: Any, out: Array, grad: Array, dot: Array, dleft: Array, first: int, last: int
) -> None:
    """Do what attend_back_rows does."""
    indptr, indices, z, heads, fields = given
    scores, dropout = score_pointers(heads), epilogue_pointers(fields)
    count_heads = scores.heads
    width = z.shape[1] // count_heads
    found, numbers = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.uint64)
    weights = np.empty(count_heads * CHUNK, z.dtype)
    slopes = np.empty(CHUNK, z.dtype)
    words = np.empty((count_heads + 3) * CHUNK, np.uint32)
    sums = np.empty(size_of_sums(count_heads, width), z.dtype)
    summed = np.empty(z.shape[1], z.dtype)
    leaning = np.empty(count_heads, z.dtype)
    ones = np.ones(count_heads, z.dtype)
    for row in range(first, last):
        left = moved(scores.left, row * scores.strides[0])
        peak = moved(scores.peak, row * scores.strides[2])
        total = moved(scores.total, row * scores.strides[3])
        clear(pointer(sums), len(sums))
        clear(pointer(leaning), count_heads)
        at, end, done = indptr[row], indptr[row + 1], False
        while not done:
            count, at, done = next_chunk(
                pointer(indices), at, end, row, pointer(found), pointer(z), stride(z), z.shape[1]
            )
            spread(
                scores.right,
                scores.strides[1],
                pointer(found),
                count,
                count_heads,
                pointer(weights),
            )
            for h in range(count_heads):
                weight, slope = moved(pointer(weights), h * CHUNK), pointer(slopes)
                _leak(weight, left[h], scores.slope, dropout.zero, slope, count)
                exp_in_place(weight, peak[h], count)
                share = ones[h] / total[h]
                for j in range(count):
                    weight[j] *= share * slope[j]
                leaning[h] += total_of(weight, count)
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
                drop_weights(dropout, count_heads, pointer(words), count, pointer(weights))
            add_rows(
                pointer(weights),
                pointer(found),
                count,
                pointer(z),
                stride(z),
                count_heads,
                width,
                pointer(sums),
            )
        write_rows(pointer(sums), pointer(ones), count_heads, width, pointer(summed))
        gradient = moved(pointer(grad), row * stride(grad))
        value = moved(pointer(out), row * stride(out))
        for h in range(count_heads):
            slope = moved(gradient, h * width)
            dot[row, h] = product(slope, moved(value, h * width), width)
            along = product(slope, moved(pointer(summed), h * width), width)
            dleft[row, h] = along - dot[row, h] * leaning[h]


@njit(cache=True, nogil=True, error_model="numpy")
def back_columns(
    given: Any, grad: Array, dot: Array, dz: Array, dright: Array, first: int, last: int
) -> None:
    """Do what attend_back_columns does."""
    indptr, indices, z, heads, fields = given
    scores, dropout = score_pointers(heads), epilogue_pointers(fields)
    count_heads = scores.heads
    width = z.shape[1] // count_heads
    found, numbers = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.uint64)
    # Of the rows that read a column: weights, slopes, peaks, totals, dots.
    known = np.empty(5 * count_heads * CHUNK, z.dtype)
    words = np.empty((count_heads + 3) * CHUNK, np.uint32)
    sums = np.empty(size_of_sums(count_heads, width), z.dtype)
    bent = np.empty(len(sums), z.dtype)
    summed = np.empty(z.shape[1], z.dtype)
    leaning = np.empty(count_heads, z.dtype)
    ones = np.ones(count_heads, z.dtype)
    size = count_heads * CHUNK
    for column in range(first, last):
        weights, slopes = pointer(known), moved(pointer(known), size)
        peaks, totals = moved(slopes, size), moved(slopes, 2 * size)
        dots = moved(slopes, 3 * size)
        right = moved(scores.right, column * scores.strides[1])
        itself = column if column < len(grad) else -1
        clear(pointer(sums), len(sums))
        clear(pointer(bent), len(sums))
        clear(pointer(leaning), count_heads)
        at, end, done = indptr[column], indptr[column + 1], False
        while not done:
            places, lengths = pointer(found), scores.strides
            count, at, done = next_chunk(
                pointer(indices), at, end, itself, places, pointer(grad), stride(grad), z.shape[1]
            )
            spread(scores.left, lengths[0], places, count, count_heads, weights)
            spread(scores.peak, lengths[2], places, count, count_heads, peaks)
            spread(scores.total, lengths[3], places, count, count_heads, totals)
            spread(pointer(dot), stride(dot), places, count, count_heads, dots)
            for h in range(count_heads):
                weight, slope = moved(weights, h * CHUNK), moved(slopes, h * CHUNK)
                peak, total = moved(peaks, h * CHUNK), moved(totals, h * CHUNK)
                _leak(weight, right[h], scores.slope, dropout.zero, slope, count)
                for j in range(count):
                    weight[j] -= peak[j]
                exp_in_place(weight, dropout.zero, count)
                for j in range(count):
                    weight[j] /= total[j]
                for j in range(count):
                    leaning[h] += weight[j] * slope[j] * dots[h * CHUNK + j]
            if dropout.dropping:
                edge_words(
                    dropout, scores, column, False, places, count, pointer(numbers), pointer(words)
                )
                drop_weights(dropout, count_heads, pointer(words), count, weights)
            rows, length = pointer(grad), stride(grad)
            add_rows(weights, places, count, rows, length, count_heads, width, pointer(sums))
            for h in range(count_heads):
                for j in range(h * CHUNK, h * CHUNK + count):
                    weights[j] *= slopes[j]
            add_rows(weights, places, count, rows, length, count_heads, width, pointer(bent))
        target = moved(pointer(dz), column * stride(dz))
        write_rows(pointer(sums), pointer(ones), count_heads, width, target)
        write_rows(pointer(bent), pointer(ones), count_heads, width, pointer(summed))
        value = moved(pointer(z), column * stride(z))
        for h in range(count_heads):
            along = product(moved(value, h * width), moved(pointer(summed), h * width), width)
            dright[column, h] = along - leaning[h]


@njit(cache=True)
def _leak(weight: Any, added: Any, slope: Any, zero: Any, slopes: Any, count: Any) -> None:
    """Turn sums, with ``added`` as one part, into scores, and write leaky's slope at each."""
    one = zero + np.int8(1)
    for j in range(count):
        value = weight[j] + added
        slopes[j] = one if value > zero else slope
        weight[j] = slopes[j] * value
