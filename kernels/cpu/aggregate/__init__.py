"""Gathering over the rows of a block, in Numba; names and meaning are naive/aggregate.py's.

Sums stay in registers: see rows.py. A kernel runs on one thread and releases the GIL.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import (
    epilogue_fields,
    epilogue_pointers,
    epilogue_row,
    read_only,
    stride,
)
from penstock.kernels.cpu.aggregate.rows import (
    csr_fields,
    csr_pointers,
    max_back_row,
    max_row,
    sum_row,
)
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.gnn_rules import Epilogue, ScaledCSR


def gather(
    block: ScaledCSR, x: Array, out: Array, first: int, last: int, epilogue: Epilogue | None = None
) -> None:
    """Write the weighted sums of rows ``first .. last`` at ``out``, with their epilogue, if any."""
    fields = tuple(epilogue_fields(epilogue, out))
    _gather(
        tuple(csr_fields(block, out)),
        read_only(x, out),
        out,
        fields,
        epilogue is not None,
        first,
        last,
    )


def gather_max(block: ScaledCSR, x: Array, out: Array, arg: Array, first: int, last: int) -> None:
    """Write the maximum of each feature over a row's columns, and the argmax at ``arg``."""
    _gather_max(
        read_only(block.indptr, out),
        read_only(block.indices, out),
        read_only(x, out),
        out,
        arg,
        first,
        last,
    )


def gather_max_back(
    transpose: ScaledCSR, grad: Array, arg: Array, out: Array, first: int, last: int
) -> None:
    """Write the gradient of ``gather_max``'s x at rows ``first .. last`` of ``out``."""
    _gather_max_back(
        read_only(transpose.indptr, out),
        read_only(transpose.indices, out),
        read_only(grad, out),
        read_only(arg, out),
        out,
        first,
        last,
    )


def transpose(block: ScaledCSR) -> ScaledCSR:
    """Return the transpose of a block: the same edges, listed by column."""
    weighted = block.weights is not None
    weights = np.empty(0, np.float32) if block.weights is None else block.weights
    indptr, indices, moved_weights = _transpose(
        read_only(block.indptr, weights),
        read_only(block.indices, weights),
        read_only(weights, weights),
        weighted,
        block.columns,
    )
    diagonal = block.diagonal
    if diagonal is not None:
        diagonal = np.zeros(block.columns, diagonal.dtype)
        diagonal[: block.rows] = block.diagonal
    return ScaledCSR(
        indptr=indptr,
        indices=indices,
        columns=block.rows,
        weights=moved_weights if weighted else None,
        left=block.right,
        right=block.left,
        diagonal=diagonal,
    )


@njit(cache=True, nogil=True)
def _gather(
    rows: Any, x: Array, out: Array, fields: Any, has_epilogue: bool, first: int, last: int
) -> None:
    block, epilogue = csr_pointers(rows), epilogue_pointers(fields)
    width = out.shape[1]
    words = np.empty(width + 3 if epilogue.dropping else 0, np.uint32)
    for row in range(first, last):
        target = moved(pointer(out), row * stride(out))
        sum_row(block, row, pointer(x), stride(x), target, width)
        if has_epilogue:
            epilogue_row(epilogue, row, target, width, pointer(words))


@njit(cache=True, nogil=True)
def _gather_max(
    indptr: Array, indices: Array, x: Array, out: Array, arg: Array, first: int, last: int
) -> None:
    columns, values, width = pointer(indices), pointer(x), out.shape[1]
    edges = len(indices)
    for row in range(first, last):
        target = moved(pointer(out), row * stride(out))
        whose = moved(pointer(arg), row * stride(arg))
        span = indptr[row], indptr[row + 1]
        if span[0] == span[1]:
            for f in range(width):
                target[f] = 0
                whose[f] = -1
        else:
            max_row(columns, span, edges, values, stride(x), target, whose, width)


@njit(cache=True, nogil=True)
def _gather_max_back(
    indptr: Array, indices: Array, grad: Array, arg: Array, out: Array, first: int, last: int
) -> None:
    readers, width = pointer(indices), out.shape[1]
    slopes, whose = (pointer(grad), stride(grad)), (pointer(arg), stride(arg))
    for column in range(first, last):
        target = moved(pointer(out), column * stride(out))
        edges = readers, indptr[column], indptr[column + 1], len(indices)
        max_back_row(edges, slopes, whose, column, target, width)


@njit(cache=True, nogil=True)
def _transpose(
    indptr: Array, indices: Array, weights: Array, weighted: bool, columns: int
) -> tuple[Array, Array, Array]:
    starts = np.zeros(columns + 1, np.int64)
    for e in range(len(indices)):
        starts[indices[e] + 1] += 1
    for column in range(columns):
        starts[column + 1] += starts[column]
    free = starts[:-1].copy()
    rows = np.empty(len(indices), indices.dtype)
    values = np.empty(len(weights), weights.dtype)
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            place = free[indices[e]]
            free[indices[e]] = place + 1
            rows[place] = row
            if weighted:
                values[place] = weights[e]
    return starts, rows, values
