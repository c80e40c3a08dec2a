"""The end of a layer, and its backward pass: ``out = drop(act(z + bias + skip))``."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import ID_BITS, SLOPE, Activation, Dropout, Epilogue, ScaledCSR
from penstock.kernels.naive.philox import philox4x32


def apply_epilogue(z: Array, out: Array, epilogue: Epilogue, first: int, last: int) -> None:
    """Apply an epilogue to rows ``first .. last`` of ``z`` into ``out``, which may be ``z``."""
    value = z[first:last].copy()
    if epilogue.bias is not None:
        value += epilogue.bias
    if epilogue.skip is not None:
        value += epilogue.skip[first:last]
    out[first:last] = _act(value, epilogue.activation) * factors(epilogue.drop, first, last, z)


def epilogue_backward(grad: Array, out: Array, epilogue: Epilogue, first: int, last: int) -> None:
    """Turn rows ``first .. last`` of ``grad``, that of ``out``, into the gradient of ``z``.

    ``out`` is the result of ``apply_epilogue`` with the same epilogue. The gradients of bias and
    skip are the sums of columns, and ``grad`` itself.
    """
    factor = factors(epilogue.drop, first, last, grad)
    kept = np.where(factor > 0, factor, 1)
    slope = _slope(out[first:last] / kept, epilogue.activation)
    grad[first:last] *= slope * factor


def factors(drop: Dropout | None, first: int, last: int, like: Array) -> Array:
    """Return the final factors of values: 0 for dropped ones."""
    width = like.shape[1]
    if drop is None:
        return np.ones((last - first, width), like.dtype)
    column = np.arange(width)
    which = drop.ids[first:last, None].astype(np.uint64) | (column // 4).astype(
        np.uint64
    ) << np.uint64(ID_BITS)
    words = np.stack(philox4x32(drop.seed, drop.stream, which, drop.step))
    word = np.take_along_axis(words, (column % 4)[None, None, :], 0)[0]
    return np.where(word >= drop.below, drop.scale, 0).astype(like.dtype)


def scale_rows(x: Array, factors: Array, out: Array, first: int, last: int) -> None:
    """Write rows ``first .. last`` of ``x``, each times its factor, to ``out`` (maybe ``x``).

    factors  (rows,), of x's type
    """
    out[first:last] = factors[first:last, None] * x[first:last]


def drop_values(block: ScaledCSR, drop: Dropout, out: Array, *, rows_are_columns: bool) -> None:
    """Write a sparse feature matrix' values, some dropped, to ``out``, (edges,).

    ``block`` has nodes as rows, or, with ``rows_are_columns``, is the transpose: features as rows.
    A value is dropped as ``apply_epilogue`` drops that of its node and feature.
    """
    row = np.repeat(np.arange(block.rows), np.diff(block.indptr))
    node, feature = (block.indices, row) if rows_are_columns else (row, block.indices)
    which = drop.ids[node].astype(np.uint64) | (feature // 4).astype(np.uint64) << np.uint64(
        ID_BITS
    )
    words = np.stack(philox4x32(drop.seed, drop.stream, which, drop.step))
    word = words[feature % 4, np.arange(len(feature))]
    out[:] = block.weights * np.where(word >= drop.below, drop.scale, 0)


def _act(value: Array, activation: Activation) -> Array:
    if activation == Activation.RELU:
        return np.maximum(value, 0)
    if activation == Activation.LEAKY_RELU:
        return np.where(value > 0, value, SLOPE * value)
    if activation == Activation.ELU:
        return np.where(value > 0, value, np.expm1(np.minimum(value, 0)))
    if activation == Activation.TANH:
        return np.tanh(value)
    if activation == Activation.SIGMOID:
        return 1 / (1 + np.exp(-value))
    return value


def _slope(value: Array, activation: Activation) -> Array:
    if activation == Activation.RELU:
        return np.where(value > 0, 1, 0)
    if activation == Activation.LEAKY_RELU:
        return np.where(value > 0, 1, SLOPE)
    if activation == Activation.ELU:
        return np.where(value > 0, 1, value + 1)
    if activation == Activation.TANH:
        return 1 - value**2
    if activation == Activation.SIGMOID:
        slope: Array = value * (1 - value)
        return slope
    return np.ones_like(value)
