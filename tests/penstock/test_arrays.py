from __future__ import annotations

import numpy as np
import pytest

from penstock.arrays import copy_in_lines, empty_lines


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (1000, 128), (7,)])
def test_arrays_begin_with_a_cache_line(shape: tuple[int, ...]) -> None:
    for _ in range(5):  # NumPy's alignment depends on earlier allocations
        found = empty_lines(shape)
        assert found.shape == shape
        assert found.dtype == np.float32
        assert found.ctypes.data % 64 == 0
        assert found.flags.c_contiguous


def test_copies_have_what_was_there_and_memory_of_their_own() -> None:
    array = np.arange(130, dtype=np.float32)[1:].reshape(43, 3)
    copied = copy_in_lines(array)
    np.testing.assert_array_equal(copied, array)
    assert copied.ctypes.data % 64 == 0
    copied[0, 0] = 99
    assert array[0, 0] == 1
