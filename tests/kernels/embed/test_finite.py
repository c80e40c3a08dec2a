"""Whether values are numbers: every backend finds the one that is none, wherever it is."""

import numpy as np
import pytest

from penstock.kernels.naive.finite import are_finite as truth


@pytest.mark.parametrize("size", [1, 7000, (1 << 20) + 3])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_every_backend_finds_values_that_are_not_finite(backend, size, bad):
    are_finite = backend.module("finite").are_finite
    values = np.full((size, 1), 3e38, np.float32)  # whose squares are none
    values[0] = np.float32(1e-45)
    assert truth(values)
    assert bool(are_finite(backend.put(values)))
    for place in {0, size // 2, size - 1}:
        kept, values[place] = values[place].copy(), bad
        assert not truth(values)
        assert not bool(are_finite(backend.put(values)))
        values[place] = kept


def test_an_empty_array_is_finite(backend):
    assert bool(backend.module("finite").are_finite(backend.put(np.empty((0, 4), np.float32))))
