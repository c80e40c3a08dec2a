import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu import scramble as cpu
from penstock.kernels.naive import scramble as naive


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_is_a_permutation(size, seed):
    moved = cpu.scramble(seed, 14, 0, size, size)
    np.testing.assert_array_equal(np.sort(moved), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000, 2**20, 2**31 - 1])
def test_backends_agree(size):
    first, count = max(0, size - 700), min(size, 700)
    truth = naive.scramble(3, 1, first, count, size)
    assert truth.dtype == np.int32
    np.testing.assert_array_equal(cpu.scramble(3, 1, first, count, size), truth)
