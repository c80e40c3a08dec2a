"""Normalising a layer's values over each row (layer norm) or each column (batch norm).

``sums`` are float64 and are added to, so that pieces of rows and ranks can be combined.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import EPSILON, Factors


def column_sums(x: Array, sums: Array, first: int, last: int) -> None:
    """Add the sum of each column of rows ``first .. last`` to ``sums``, (width,)."""
    sums += x[first:last].sum(axis=0, dtype=np.float64)


def layer_norm(
    z: Array, scale: Array, shift: Array, out: Array, moments: Array, first: int, last: int
) -> None:
    """Write ``scale * (z - mean) / deviation + shift``, row by row.

    ``moments``, (rows, 2), keeps each row's mean and 1 / deviation. ``out`` may not be ``z``.
    """
    rows = z[first:last]
    mean = rows.mean(axis=1)
    inverse = 1 / np.sqrt(rows.var(axis=1) + EPSILON)
    moments[first:last] = np.stack([mean, inverse], axis=1)
    out[first:last] = scale * (rows - mean[:, None]) * inverse[:, None] + shift


def layer_norm_back(
    grad: Array, z: Array, scale: Array, moments: Array, sums: Array, first: int, last: int
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place.

    Adds the gradients of shift and scale to ``sums``, (2, width).
    """
    mean, inverse = moments[first:last, :1], moments[first:last, 1:]
    normal = (z[first:last] - mean) * inverse
    given = grad[first:last].copy()
    sums[0] += given.sum(axis=0, dtype=np.float64)
    sums[1] += (given * normal).sum(axis=0, dtype=np.float64)
    inner = given * scale
    grad[first:last] = inverse * (
        inner
        - inner.mean(axis=1, keepdims=True)
        - normal * (inner * normal).mean(axis=1, keepdims=True)
    )


def batch_moments(z: Array, sums: Array, first: int, last: int) -> None:
    """Add to ``sums``, (2, width), the sum of each column, and that of its squares."""
    rows = z[first:last].astype(np.float64)
    sums[0] += rows.sum(axis=0)
    sums[1] += (rows**2).sum(axis=0)


def batch_norm(z: Array, factors: Factors, out: Array, first: int, last: int) -> None:
    """Write ``scale * (z - mean) * inverse + shift`` with one mean and inverse per column."""
    mean, inverse, scale, shift = factors
    out[first:last] = scale * (z[first:last] - mean) * inverse + shift


def batch_norm_sums(
    grad: Array, z: Array, factors: Factors, sums: Array, first: int, last: int
) -> None:
    """Add to ``sums``, (2, width), the gradients of shift and scale."""
    mean, inverse, _, _ = factors
    given = grad[first:last].astype(np.float64)
    sums[0] += given.sum(axis=0)
    sums[1] += (given * ((z[first:last] - mean) * inverse)).sum(axis=0)


def batch_norm_back(
    grad: Array, z: Array, factors: Factors, means: Array, first: int, last: int
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place.

    ``means``, (2, width) of z's type, are the sums of ``batch_norm_sums`` over all rows of the
    graph, divided by their number.
    """
    mean, inverse, scale, _ = factors
    normal = (z[first:last] - mean) * inverse
    grad[first:last] = scale * inverse * (grad[first:last] - means[0] - normal * means[1])
