"""Normalising over each row or each column, in Numba; names and meaning are naive/norm.py's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.activation.row import stride
from penstock.kernels.cpu.vector import moved, pointer, pointers
from penstock.kernels.gnn_rules import EPSILON, Factors


@entry("sums")
def column_sums(x: Array, sums: Array, first: int, last: int) -> None:
    """Add the sum of each column of rows ``first .. last`` to ``sums``, (width,)."""
    width, total = x.shape[1], pointer(sums)
    for row in range(first, last):
        value = moved(pointer(x), row * stride(x))
        for f in range(width):
            total[f] += value[f]


# Sums over a row may be in any order, so that they vectorise.
@njit(cache=True, fastmath={"reassoc"}, error_model="numpy")
def _row_moments(value: Any, width: Any) -> Any:
    total = 0.0
    for f in range(width):
        total += value[f]
    mean = total / width
    spread = 0.0
    for f in range(width):
        away = value[f] - mean
        spread += away * away
    return mean, 1 / math.sqrt(spread / width + EPSILON)


@entry("out", "moments")
def layer_norm(
    z: Array, scale: Array, shift: Array, out: Array, moments: Array, first: int, last: int
) -> None:
    """Write ``scale * (z - mean) / deviation + shift``, row by row."""
    width, factor, added = z.shape[1], pointer(scale), pointer(shift)
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        target = moved(pointer(out), row * stride(out))
        moments[row, 0], moments[row, 1] = _row_moments(value, width)
        mean, inverse = moments[row, 0], moments[row, 1]
        for f in range(width):
            target[f] = factor[f] * (value[f] - mean) * inverse + added[f]


@entry("grad", "sums", error_model="numpy")
def layer_norm_back(
    grad: Array, z: Array, scale: Array, moments: Array, sums: Array, first: int, last: int
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place."""
    width, factor = z.shape[1], pointer(scale)
    shifts = pointer(sums)
    scales = moved(shifts, stride(sums))
    narrow = np.empty(2, z.dtype)
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        slope = moved(pointer(grad), row * stride(grad))
        mean, inverse = moments[row, 0], moments[row, 1]
        for f in range(width):
            shifts[f] += slope[f]
            scales[f] += slope[f] * ((value[f] - mean) * inverse)
        narrow[0], narrow[1] = _row_leanings(slope, value, factor, mean, inverse, width)
        inner, leaning = narrow[0], narrow[1]
        for f in range(width):
            normal = (value[f] - mean) * inverse
            slope[f] = inverse * (slope[f] * factor[f] - inner - normal * leaning)


@njit(cache=True, fastmath={"reassoc"}, error_model="numpy")
def _row_leanings(slope: Any, value: Any, factor: Any, mean: Any, inverse: Any, width: Any) -> Any:
    """Return the means of a row's gradient in normalised values, and of its product with them."""
    inner = leaning = 0.0
    for f in range(width):
        given = slope[f] * factor[f]
        inner += given
        leaning += given * ((value[f] - mean) * inverse)
    return inner / width, leaning / width


@entry("sums")
def batch_moments(z: Array, sums: Array, first: int, last: int) -> None:
    """Add to ``sums``, (2, width), the sum of each column, and that of its squares."""
    width, total = z.shape[1], pointer(sums)
    squares = moved(total, stride(sums))
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        for f in range(width):
            wide = np.float64(value[f])
            total[f] += wide
            squares[f] += wide * wide


@entry("out")
def batch_norm(z: Array, factors: Factors, out: Array, first: int, last: int) -> None:
    """Write ``scale * (z - mean) * inverse + shift`` with one mean and inverse per column."""
    width = z.shape[1]
    middle, narrowing, factor, added = pointers(factors)
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        target = moved(pointer(out), row * stride(out))
        for f in range(width):
            target[f] = factor[f] * (value[f] - middle[f]) * narrowing[f] + added[f]


@entry("sums")
def batch_norm_sums(
    grad: Array, z: Array, factors: Factors, sums: Array, first: int, last: int
) -> None:
    """Add to ``sums``, (2, width), the gradients of shift and scale."""
    width = z.shape[1]
    middle, narrowing, _, _ = pointers(factors)
    shifts = pointer(sums)
    scales = moved(shifts, stride(sums))
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        slope = moved(pointer(grad), row * stride(grad))
        for f in range(width):
            given = np.float64(slope[f])
            shifts[f] += given
            scales[f] += given * ((value[f] - middle[f]) * narrowing[f])


@entry("grad")
def batch_norm_back(
    grad: Array, z: Array, factors: Factors, means: Array, first: int, last: int
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place."""
    width = z.shape[1]
    middle, narrowing, factor, _ = pointers(factors)
    shifts = pointer(means)
    scales = moved(shifts, stride(means))
    for row in range(first, last):
        value = moved(pointer(z), row * stride(z))
        slope = moved(pointer(grad), row * stride(grad))
        for f in range(width):
            normal = (value[f] - middle[f]) * narrowing[f]
            slope[f] = factor[f] * narrowing[f] * (slope[f] - shifts[f] - normal * scales[f])
