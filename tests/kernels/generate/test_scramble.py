from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu import scramble as cpu
from penstock.kernels.naive import scramble as naive


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_is_a_permutation(size: int, seed: int) -> None:
    moved = cpu.scramble(seed, 14, 0, size, size)
    np.testing.assert_array_equal(np.sort(moved), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000, 2**20, 2**31 - 1])
def test_backends_agree(size: int) -> None:
    first, count = max(0, size - 700), min(size, 700)
    truth = naive.scramble(3, 1, first, count, size)
    assert truth.dtype == np.int32
    np.testing.assert_array_equal(cpu.scramble(3, 1, first, count, size), truth)


def test_seeds_and_streams_differ() -> None:
    one = cpu.scramble(1, 14, 0, 4096, 4096)
    for other in (cpu.scramble(2, 14, 0, 4096, 4096), cpu.scramble(1, 1, 0, 4096, 4096)):
        assert np.mean(one == other) < 0.01


def test_neighbours_are_parted() -> None:
    moved = cpu.scramble(0, 14, 0, 1 << 16, 1 << 16).astype(np.int64)
    assert abs(np.corrcoef(np.arange(1 << 16), moved)[0, 1]) < 0.02
    # |x - y| of two uniform numbers is a third of the range on average.
    assert np.abs(np.diff(moved)).mean() / (1 << 16) == pytest.approx(1 / 3, rel=0.02)
