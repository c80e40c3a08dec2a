"""Rows of uniform random numbers: all backends agree, and the numbers are spread evenly."""

import numpy as np
import pytest

from penstock.kernels.cpu.uniform_rows import uniform_rows
from penstock.kernels.naive.uniform_rows import uniform_rows as truth


@pytest.mark.parametrize("width", [1, 4, 7, 200])
@pytest.mark.parametrize("seed", [3, 2**64 - 1])
def test_every_backend_draws_the_same(backend, same, width, seed):
    which = np.random.default_rng(width).integers(0, 2**40, 3000)
    rows = backend.module("uniform_rows").uniform_rows(seed, 90, backend.put(which), width, 2)
    same(rows, truth(seed, 90, which, width, 2))


@pytest.mark.parametrize("width", [1, 6])
def test_numbers_are_uniform(width):
    found = uniform_rows(1, 90, np.arange(60_000 // width), width).ravel()
    assert -1 < found.min() < -0.999
    assert 0.999 < found.max() < 1
    counts = np.histogram(found, 20, (-1, 1))[0]
    expected = found.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared of 19: p of 0.0007
