import copy

import numpy as np
import pytest

from penstock.kernels import gnn_rules
from penstock.kernels.gnn_rules import Factors
from penstock.kernels.naive import norm as naive

ROWS = 37
PART = 2, 33  # the rows computed
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
WIDTHS = pytest.mark.parametrize("width", [1, 3, 8, 32, 47, 100])


def normal(shape, dtype="float64", seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


def compare(backend, name, arrays, rows=PART, **tolerance):
    """Call a function of both with the same arrays, and compare all of them afterwards."""
    truth = [each if isinstance(each, tuple) else each.copy() for each in arrays]
    mine = [
        Factors(*map(backend.put, each)) if isinstance(each, tuple) else backend.put(each)
        for each in map(copy.deepcopy, arrays)
    ]
    getattr(naive, name)(*truth, *rows)
    getattr(backend.module("norm"), name)(*mine, *rows)
    for got, expected in zip(mine, truth, strict=True):
        if not isinstance(expected, tuple):
            np.testing.assert_allclose(backend.get(got), expected, **{**TOLERANCE, **tolerance})
    return truth


@WIDTHS
def test_rows_are_normalised_as_by_the_twin(backend, width):
    z, scale, shift = normal((ROWS, width), "float32"), *normal((2, width), "float32", 1)
    if width == 1:
        z[:] = 1  # a deviation of 0, instead of one of rounding errors
    out, moments = np.zeros((ROWS, width), "float32"), np.zeros((ROWS, 2), "float32")
    written = compare(backend, "layer_norm", [z, scale, shift, out, moments])
    grad, sums = normal((ROWS, width), "float32", 2), np.ones((2, width))
    tolerance = dict(TOLERANCE)
    if width == 1:
        # The gradient is (grad * scale - the mean of that) * 316: 0, or, where a fused multiply-add
        # does not round the product, what rounding it takes away, 316 times.
        lost = np.finfo("float32").eps * np.abs(grad * scale).max()
        tolerance["atol"] += lost / np.sqrt(gnn_rules.EPSILON)
    compare(backend, "layer_norm_back", [grad, z, scale, written[4], sums], **tolerance)


@WIDTHS
def test_columns_are_normalised_as_by_the_twin(backend, width):
    z, (scale, shift) = normal((ROWS, width), "float32"), normal((2, width), "float32", 1)
    grad = normal((ROWS, width), "float32", 2)
    compare(backend, "column_sums", [z, np.ones(width)])
    compare(backend, "batch_moments", [z, np.ones((2, width))])
    factors = Factors(z.mean(axis=0), 1 / z.std(axis=0), scale, shift)
    compare(backend, "batch_norm", [z, factors, np.zeros_like(z)])
    sums = compare(backend, "batch_norm_sums", [grad, z, factors, np.ones((2, width))])
    means = (sums[3] / ROWS).astype("float32")
    compare(backend, "batch_norm_back", [grad, z, factors, means])


def test_sums_of_many_rows_are_exact(backend):
    # In float32 the sum would stop growing at 2**24.
    x = np.full((2**24 + 1000, 1), 1, np.float32)
    ours = backend.module("norm")
    column, moments = backend.put(np.zeros(1)), backend.put(np.zeros((2, 1)))
    ours.column_sums(backend.put(x), column, 0, len(x))
    ours.batch_moments(backend.put(x), moments, 0, len(x))
    assert backend.get(column).tolist() == [len(x)]
    assert backend.get(moments).ravel().tolist() == [len(x)] * 2


def test_pieces_of_rows_join(backend):
    z, whole, pieces = normal((ROWS, 5), "float32"), np.zeros((2, 5)), np.zeros((2, 5))
    naive.batch_moments(z, whole, 0, ROWS)
    there, given = backend.put(pieces), backend.put(z)
    for first in range(0, ROWS, 10):
        backend.module("norm").batch_moments(given, there, first, min(first + 10, ROWS))
    np.testing.assert_allclose(backend.get(there), whole, rtol=1e-12)
