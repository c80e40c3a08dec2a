"""Copies to a GPU pin memory of few sizes, which CuPy uses again."""

import numpy as np
import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("length", [0, 5, (1 << 25) + 77])
def test_an_upload_of_any_size_arrives(length):
    import cupy as cp

    from penstock.kernels.cuda.uploads import upload

    array = np.arange(length, dtype=np.int32)
    there = cp.zeros(length, cp.int32)
    cp.cuda.Stream.null.synchronize()  # the other stream does not wait for it
    upload(array, there, cp.cuda.Stream(non_blocking=True))
    np.testing.assert_array_equal(there.get(), array)
