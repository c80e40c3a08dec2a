"""Gathering over the rows of a block: sums, means, maxima, and their backward passes.

x has a row for each column of the block, out one for each of its rows; ``first .. last`` are the
rows to compute. The backward pass of a sum is ``gather`` over the transpose.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import Epilogue, ScaledCSR
from penstock.kernels.naive.activation import apply_epilogue


def gather(
    block: ScaledCSR, x: Array, out: Array, first: int, last: int, epilogue: Epilogue | None = None
) -> None:
    """Write the weighted sums of rows ``first .. last`` at ``out``, with their epilogue, if any."""
    for row in range(first, last):
        span = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        columns = block.indices[span]
        factor = np.ones(len(columns), out.dtype)
        if block.weights is not None:
            factor *= block.weights[span]
        if block.right is not None:
            factor *= block.right[columns]
        total = factor @ x[columns]
        if block.diagonal is not None:
            right = 1 if block.right is None else block.right[row]
            total += block.diagonal[row] * right * x[row]
        out[row] = total if block.left is None else block.left[row] * total
    if epilogue is not None:
        apply_epilogue(out, out, epilogue, first, last)


def gather_max(block: ScaledCSR, x: Array, out: Array, arg: Array, first: int, last: int) -> None:
    """Write the maximum of each feature over a row's columns, and the argmax at ``arg``.

    Of equals the first column counts. A row without edges gives 0, and -1 at ``arg`` (int32 or
    int64, like indices). Weights, factors and diagonal do not matter.
    """
    for row in range(first, last):
        columns = block.indices[int(block.indptr[row]) : int(block.indptr[row + 1])]
        if len(columns) == 0:
            out[row], arg[row] = 0, -1
            continue
        best = np.argmax(x[columns], axis=0)
        arg[row] = columns[best]
        out[row] = x[columns[best], np.arange(x.shape[1])]


def gather_max_back(
    transpose: ScaledCSR, grad: Array, arg: Array, out: Array, first: int, last: int
) -> None:
    """Write the gradient of ``gather_max``'s x at rows ``first .. last`` of ``out``.

    ``transpose`` lists the rows that read each column, ascending; one that reads it twice counts
    once.
    """
    for column in range(first, last):
        readers = np.unique(
            transpose.indices[int(transpose.indptr[column]) : int(transpose.indptr[column + 1])]
        )
        out[column] = np.where(arg[readers] == column, grad[readers], 0).sum(axis=0)


def transpose(block: ScaledCSR) -> ScaledCSR:
    """Return the transpose of a block: the same edges, listed by column."""
    rows = np.repeat(np.arange(block.rows), np.diff(block.indptr))
    order = np.argsort(block.indices, kind="stable")
    indptr = np.zeros(block.columns + 1, np.int64)
    np.cumsum(np.bincount(block.indices, minlength=block.columns), out=indptr[1:])
    diagonal = own = block.diagonal
    if own is not None:
        shared = min(block.rows, block.columns)
        diagonal = np.zeros(block.columns, own.dtype)
        diagonal[:shared] = own[:shared]
    return ScaledCSR(
        indptr=indptr,
        indices=rows[order].astype(block.indices.dtype),
        columns=block.rows,
        weights=None if block.weights is None else block.weights[order],
        left=block.right,
        right=block.left,
        diagonal=diagonal,
    )
