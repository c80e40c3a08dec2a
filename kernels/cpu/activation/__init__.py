"""Activation, dropout and bias of a layer, and backward, in Numba; see naive/activation.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import (
    RELU,
    dropout_fields,
    epilogue_fields,
    epilogue_pointers,
    epilogue_row,
    read_only,
    row_words,
    slope_row,
    stride,
)
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.gnn_rules import ID_BITS, Dropout, Epilogue, ScaledCSR


def apply_epilogue(z: Array, out: Array, epilogue: Epilogue, first: int, last: int) -> None:
    """Apply an epilogue to rows ``first .. last`` of ``z`` into ``out``, which may be ``z``."""
    _apply_epilogue(
        read_only(z, z), out, tuple(epilogue_fields(epilogue, out)), first, last, z is not out
    )


def epilogue_backward(grad: Array, out: Array, epilogue: Epilogue, first: int, last: int) -> None:
    """Turn rows ``first .. last`` of ``grad``, that of ``out``, into the gradient of ``z``."""
    _epilogue_backward(
        grad, read_only(out, grad), tuple(epilogue_fields(epilogue, grad)), first, last
    )


def factors(drop: Dropout | None, first: int, last: int, like: Array) -> Array:
    """Return the final factors of values: 0 for dropped ones."""
    found = np.ones((last - first, like.shape[1]), like.dtype)
    if drop is not None:
        _factors(found, tuple(dropout_fields(drop, found)), first)
    return found


def scale_rows(x: Array, factors: Array, out: Array, first: int, last: int) -> None:
    """Write rows ``first .. last`` of ``x``, each times its factor, to ``out`` (maybe ``x``)."""
    _scale_rows(read_only(x, x), read_only(factors, x), out, first, last, x is not out)


def drop_values(block: ScaledCSR, drop: Dropout, out: Array, *, rows_are_columns: bool) -> None:
    """Write a sparse feature matrix' values, some dropped, to ``out``, (edges,)."""
    _drop_values(
        read_only(block.indptr, out),
        read_only(block.indices, out),
        read_only(block.weights, out),
        tuple(dropout_fields(drop, out)),
        out,
        rows_are_columns,
    )


@njit(cache=True, nogil=True)
def _apply_epilogue(z: Array, out: Array, fields: Any, first: int, last: int, apart: bool) -> None:
    epilogue = epilogue_pointers(fields)
    width = z.shape[1]
    words = np.empty(width + 3, np.uint32)
    for row in range(first, last):
        target = moved(pointer(out), row * stride(out))
        if apart:
            source = moved(pointer(z), row * stride(z))
            for f in range(width):
                target[f] = source[f]
        epilogue_row(epilogue, row, target, width, pointer(words))


@njit(cache=True, nogil=True)
def _epilogue_backward(grad: Array, out: Array, fields: Any, first: int, last: int) -> None:
    epilogue = epilogue_pointers(fields)
    width, zero, scale, below = grad.shape[1], epilogue.zero, epilogue.scale, epilogue.below
    words = np.empty(width + 3, np.uint32)
    for row in range(first, last):
        value = moved(pointer(out), row * stride(out))
        slope = moved(pointer(grad), row * stride(grad))
        if epilogue.activation == RELU:
            # Dropped and negative values are both 0: no random words are needed.
            for f in range(width):
                slope[f] *= scale if value[f] > zero else zero
            continue
        slope_row(epilogue, value, slope, width)
        if epilogue.dropping:
            row_words(epilogue, row, width, pointer(words))
            for f in range(width):
                slope[f] *= scale if words[f] >= below else zero


@njit(cache=True, nogil=True)
def _factors(found: Array, fields: Any, first: int) -> None:
    epilogue = epilogue_pointers(fields)
    width = found.shape[1]
    words = np.empty(width + 3, np.uint32)
    for row in range(len(found)):
        row_words(epilogue, first + row, width, pointer(words))
        for f in range(width):
            found[row, f] = epilogue.scale if words[f] >= epilogue.below else epilogue.zero


@njit(cache=True, nogil=True)
def _scale_rows(x: Array, factors: Array, out: Array, first: int, last: int, apart: bool) -> None:
    width = x.shape[1]
    for row in range(first, last):
        target, factor = moved(pointer(out), row * stride(out)), factors[row]
        if apart:
            source = moved(pointer(x), row * stride(x))
            for f in range(width):
                target[f] = factor * source[f]
        else:
            for f in range(width):
                target[f] *= factor


@njit(cache=True, nogil=True)
def _drop_values(
    indptr: Array, indices: Array, weights: Array, fields: Any, out: Array, rows_are_columns: bool
) -> None:
    epilogue = epilogue_pointers(fields)
    for row in range(len(indptr) - 1):
        drawn: Any = np.int64(-1)  # groups of four features ascend within a node
        a = b = c = d = np.uint32(0)
        for e in range(indptr[row], indptr[row + 1]):
            column = np.int64(indices[e])
            node, feature = (column, row) if rows_are_columns else (row, column)
            if rows_are_columns or feature // 4 != drawn:
                drawn = feature // 4
                which = np.uint64(epilogue.ids[node]) | np.uint64(drawn) << np.uint64(ID_BITS)
                a, b, c, d = philox4x32(epilogue.seed, epilogue.stream, which, epilogue.step)
            lane = feature % 4
            word = (a if lane == 0 else b) if lane < 2 else (c if lane == 2 else d)
            out[e] = weights[e] * (epilogue.scale if word >= epilogue.below else epilogue.zero)
