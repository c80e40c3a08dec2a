"""Rows of ghosts, packed and added in Numba, as in plain NumPy."""

import numpy as np
import pytest

from penstock.kernels.cpu import ghost_rows as cpu
from penstock.kernels.naive import ghost_rows as naive


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("count", "width"), [(0, 3), (1, 1), (50, 7), (300, 33), (300, 64)])
def test_rows_are_taken_and_added(dtype, count, width):
    rng = np.random.default_rng(count + width)
    x = rng.normal(size=(300, width)).astype(dtype)
    rows = rng.permutation(300)[:count].astype(np.int64)
    found, truth = (np.full((count, width), np.nan, dtype) for _ in range(2))
    cpu.take_rows(x, rows, found)
    naive.take_rows(x, rows, truth)
    np.testing.assert_array_equal(found, truth)
    came, expected = rng.normal(size=(count, width)).astype(dtype), x.copy()
    cpu.add_rows(x, rows, came)
    naive.add_rows(expected, rows, came)
    np.testing.assert_array_equal(x, expected)
