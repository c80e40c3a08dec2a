"""Attention over the rows of a block (GAT), and the backward pass, without an array of edges.

z has a row for each column of the block, of heads times width values: those of a head stand
together. ``out`` and ``grad`` are alike, with a row for each row of the block. A row reads a column
as often as the block lists that edge, as sums do; such edges are dropped together. Itself (column r
of row r) it always reads once, however often the block lists that.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import Dropout, Heads, ScaledCSR
from penstock.kernels.naive.philox import philox4x32


def scores(z: Array, vectors: Array, out: Array) -> None:
    """Write each head's product with its vector, (heads, width), at ``out``, (nodes, heads)."""
    heads, width = vectors.shape
    out[:] = np.einsum("nhw,hw->nh", z.reshape(len(z), heads, width), vectors)


def scores_back(grad: Array, z: Array, vectors: Array, dz: Array, dvectors: Array) -> None:
    """Add to ``dz`` and ``dvectors`` what ``grad``, of ``scores``' out, gives: (nodes, heads)."""
    heads, width = vectors.shape
    shaped = (len(z), heads, width)
    dvectors += np.einsum("nh,nhw->hw", grad, z.reshape(shaped))
    dz += (grad[:, :, None] * vectors).reshape(len(z), -1)


def attend(block: ScaledCSR, z: Array, heads: Heads, out: Array, first: int, last: int) -> None:
    """Write rows ``first .. last`` of the weighted sums to ``out``, and heads.peak and total."""
    for row in range(first, last):
        columns = _columns(block, row)
        score = _leaky(heads.left[row] + heads.right[columns], heads.slope)
        heads.peak[row] = score.max(axis=0)
        heads.total[row] = np.exp(score - heads.peak[row]).sum(axis=0)
        weight = _alpha(heads, row, columns) * _factors(heads, row, columns)
        shaped = z[columns].reshape(len(columns), heads.count, -1)
        out[row] = np.einsum("ch,chw->hw", weight, shaped).ravel()


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
    """Write, for rows ``first .. last``, the gradient of heads.left to ``dleft``, (rows, heads).

    ``grad`` is that of ``out``, which ``attend`` wrote. Their products, head by head, go to
    ``dot``, (rows, heads), for ``attend_back_columns``.
    """
    for row in range(first, last):
        columns = _columns(block, row)
        count = heads.count
        dot[row] = (grad[row].reshape(count, -1) * out[row].reshape(count, -1)).sum(axis=1)
        dscore = _score_gradient(z, heads, grad, dot, np.full(len(columns), row), columns)
        dleft[row] = dscore.sum(axis=0)


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
    """Write, for columns ``first .. last``, the gradients of z and heads.right.

    ``transpose`` lists the rows that read each column; a column that is a row reads itself too.
    """
    for column in range(first, last):
        span = slice(int(transpose.indptr[column]), int(transpose.indptr[column + 1]))
        rows = transpose.indices[span]
        if column < len(grad):
            rows = np.append(rows[rows != column], column)
        if len(rows) == 0:
            dz[column], dright[column] = 0, 0
            continue
        columns = np.full(len(rows), column)
        one = columns[:1]
        weight = np.stack([_alpha(heads, r, one)[0] * _factors(heads, r, one)[0] for r in rows])
        shaped = grad[rows].reshape(len(rows), heads.count, -1)
        dz[column] = np.einsum("rh,rhw->hw", weight, shaped).ravel()
        dright[column] = _score_gradient(z, heads, grad, dot, rows, columns).sum(axis=0)


def _score_gradient(
    z: Array, heads: Heads, grad: Array, dot: Array, rows: Array, columns: Array
) -> Array:
    """Return the gradient of each edge's sum of scores, before leaky: (edges, heads)."""
    found = np.zeros((len(rows), heads.count), z.dtype)
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        one = np.array([column])
        product = (grad[row] * z[column]).reshape(heads.count, -1).sum(axis=1)
        raw = heads.left[row] + heads.right[column]
        alpha, factor = _alpha(heads, row, one)[0], _factors(heads, row, one)[0]
        found[i] = alpha * (factor * product - dot[row]) * np.where(raw > 0, 1, heads.slope)
    return found


def _columns(block: ScaledCSR, row: int) -> Array:
    """Return the rows that a row reads: one per edge to another, and itself once."""
    listed = block.indices[int(block.indptr[row]) : int(block.indptr[row + 1])]
    return np.append(listed[listed != row], row).astype(np.int64)


def _leaky(value: Array, slope: float) -> Array:
    return np.where(value > 0, value, slope * value)


def _alpha(heads: Heads, row: int, columns: Array) -> Array:
    score = _leaky(heads.left[row] + heads.right[columns], heads.slope)
    alpha: Array = np.exp(score - heads.peak[row]) / heads.total[row]
    return alpha


def _factors(heads: Heads, row: int, columns: Array) -> Array:
    drop: Dropout | None = heads.drop
    if drop is None:
        return np.ones((len(columns), heads.count), heads.left.dtype)
    head = np.arange(heads.count)
    which = np.uint64(drop.ids[row]) * np.uint64(drop.nodes) + drop.ids[columns].astype(np.uint64)
    step = drop.step * -(-heads.count // 4) + head // 4
    words = np.stack(philox4x32(drop.seed, drop.stream, which[:, None], step[None, :]))
    word = np.take_along_axis(words, (head % 4)[None, None, :], 0)[0]
    return np.where(word >= drop.below, drop.scale, 0).astype(heads.left.dtype)
