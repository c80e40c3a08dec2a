"""Uniform rows are drawn alike and evenly; values that are not finite are found anywhere."""

import numpy as np
import pytest

from penstock.kernels.cpu.uniform_rows import uniform_rows
from penstock.kernels.naive import finite as naive_finite
from penstock.kernels.naive import uniform_rows as naive


@pytest.mark.parametrize("width", [1, 4, 7, 200])
@pytest.mark.parametrize("seed", [3, 2**64 - 1])
def test_every_backend_draws_the_same(backend, same, width, seed):
    which = np.random.default_rng(width).integers(0, 2**40, 3000)
    rows = backend.module("uniform_rows").uniform_rows(seed, 90, backend.put(which), width, 2)
    same(rows, naive.uniform_rows(seed, 90, which, width, 2))


@pytest.mark.parametrize("width", [1, 6])
def test_numbers_are_uniform(width):
    found = uniform_rows(1, 90, np.arange(60_000 // width), width).ravel()
    assert -1 < found.min() < -0.999
    assert 0.999 < found.max() < 1
    counts = np.histogram(found, 20, (-1, 1))[0]
    expected = found.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared of 19: p of 0.0007


@pytest.mark.parametrize("size", [1, 7000, (1 << 20) + 3])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_every_backend_finds_values_that_are_not_finite(backend, size, bad):
    are_finite = backend.module("finite").are_finite
    values = np.full((size, 1), 3e38, np.float32)  # whose squares are not finite
    values[0] = np.float32(1e-45)
    for some in (values, values[:0]):
        assert naive_finite.are_finite(some)
        assert bool(are_finite(backend.put(some)))
    for place in {0, size // 2, size - 1}:
        kept, values[place] = values[place].copy(), bad
        assert not naive_finite.are_finite(values)
        assert not bool(are_finite(backend.put(values)))
        values[place] = kept
