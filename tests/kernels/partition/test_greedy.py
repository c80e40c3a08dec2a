import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu import greedy as cpu
from penstock.kernels.naive import greedy as naive


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 7))
def test_cpu_equals_naive(load, k):
    load = np.array(load, dtype=np.int64)
    parts = cpu.place_by_load(load, k)
    assert parts.dtype == np.int32
    np.testing.assert_array_equal(parts, naive.place_by_load(load, k))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 7))
def test_no_part_is_above_the_mean_by_more_than_one_item(load, k):
    # The bound that list scheduling is known to keep.
    load = np.array(load, dtype=np.int64)
    sums = np.bincount(cpu.place_by_load(load, k), weights=load, minlength=k)
    assert sums.max() <= load.sum() / k + load.max() * (1 - 1 / k) + 1e-9


def test_a_power_law_is_even_to_a_percent():
    load = (np.random.default_rng(1).pareto(1.5, 20_000) * 5 + 1).astype(np.int64)
    load = np.minimum(load, load.sum() // 100)
    sums = np.bincount(cpu.place_by_load(load, 16), weights=load)
    assert sums.max() / sums.mean() <= 1.01


@pytest.mark.parametrize("backend", [naive, cpu], ids=["naive", "cpu"])
def test_items_without_load_even_out_the_counts(backend):
    parts = backend.place_by_load(np.array([10, 5, 5, 0, 0, 0], dtype=np.int64), 2)
    assert np.bincount(parts).tolist() == [3, 3]
