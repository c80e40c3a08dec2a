"""Rows of uniform random numbers: all backends agree, and the numbers are spread evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cpu.uniform_rows import uniform_rows
from penstock.kernels.naive.uniform_rows import uniform_rows as truth


@given(
    seed=st.integers(0, 2**64 - 1),
    which=st.lists(st.integers(0, 2**40), max_size=5),
    width=st.integers(1, 9),
    step=st.integers(0, 3),
)
def test_backends_agree(seed, which, width, step):
    numbers = np.array(which, np.int64)
    np.testing.assert_array_equal(
        uniform_rows(seed, 90, numbers, width, step), truth(seed, 90, numbers, width, step)
    )


@pytest.mark.parametrize("width", [1, 4, 7, 200])
@pytest.mark.parametrize("seed", [3, 2**64 - 1])
def test_every_backend_draws_the_same(backend, same, width, seed):
    which = np.random.default_rng(width).integers(0, 2**40, 3000)
    rows = backend.module("uniform_rows").uniform_rows(seed, 90, backend.put(which), width, 2)
    same(rows, truth(seed, 90, which, width, 2))


def test_a_row_depends_on_its_own_number_only():
    every = uniform_rows(3, 90, np.arange(100), 10)
    some = np.array([7, 93, 7])
    np.testing.assert_array_equal(uniform_rows(3, 90, some, 10), every[some])


@pytest.mark.parametrize("width", [1, 6])
def test_numbers_are_uniform(width):
    found = uniform_rows(1, 90, np.arange(60_000 // width), width).ravel()
    assert -1 < found.min() < -0.999
    assert 0.999 < found.max() < 1
    counts = np.histogram(found, 20, (-1, 1))[0]
    expected = found.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-squared of 19: p of 0.0007
