"""Sorting and searching within Numba's kernels, against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cpu.search import lower_bound
from penstock.kernels.cpu.sort import stable_order


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=100))
def test_integers_and_floats_are_sorted_as_numpy_does(keys):
    for dtype in (np.int64, np.float64):
        given = np.array(keys, dtype)
        np.testing.assert_array_equal(stable_order(given), np.argsort(given, kind="stable"))


@pytest.mark.parametrize("count", [16, 17, 32, 33, 1000, 4096, 5001])
def test_runs_are_merged_whole(count):
    for keys in (
        np.random.default_rng(count).integers(0, count // 4, count),
        np.arange(count)[::-1].copy(),
        np.zeros(count, np.int64),
    ):
        np.testing.assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@given(st.lists(st.integers(-9, 9), max_size=30), st.integers(-10, 10), st.data())
def test_the_first_that_is_not_less_is_found(some, value, data):
    values = np.sort(np.array(some, np.int64))
    low = data.draw(st.integers(0, len(values)))
    high = data.draw(st.integers(low, len(values)))
    expected = low + np.searchsorted(values[low:high], value)
    assert lower_bound(values, low, high, value) == expected
