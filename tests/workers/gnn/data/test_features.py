"""Features, dense or sparse, are the same numbers either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.gnn_rules import ScaledCSR
from penstock.workers.gnn.data import features as module
from penstock.workers.gnn.data.features import as_dense, as_sparse, nonzeros


def check(matrix: Any, block: ScaledCSR) -> None:
    assert block.indptr.dtype == np.int64
    assert block.indices.dtype == np.int32
    assert block.weights.dtype == np.float32
    assert (block.rows, block.columns) == matrix.shape
    for row in range(block.rows):
        span = slice(block.indptr[row], block.indptr[row + 1])
        assert (np.diff(block.indices[span]) > 0).all()
        np.testing.assert_array_equal(block.indices[span], np.flatnonzero(matrix[row]))
        np.testing.assert_array_equal(block.weights[span], matrix[row][block.indices[span]])


@given(
    st.integers(0, 30), st.integers(1, 9), st.floats(0, 1), st.integers(0, 99), st.integers(1, 50)
)
@settings(max_examples=60, deadline=None)
def test_there_and_back(rows: int, width: int, share: float, seed: int, piece: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((rows, width)).astype(np.float32)
    matrix[random.random((rows, width)) < share] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        block = as_sparse(matrix)
        check(matrix, block)
        check(matrix, as_sparse(sp.csr_matrix(matrix)))
        for form in (matrix, block, sp.csr_matrix(matrix)):
            back = as_dense(form)
            assert back.dtype == np.float32
            assert back.flags.c_contiguous
            np.testing.assert_array_equal(back, matrix)
            assert nonzeros(form) == np.count_nonzero(matrix)


def test_rows_that_are_not_in_order_are_put_in_order() -> None:
    data, indices, indptr = [1.0, 2.0, 3.0], [2, 0, 2], [0, 3]
    csr = sp.csr_matrix((data, indices, indptr), shape=(1, 3))
    check(np.array([[2, 0, 4]], np.float32), as_sparse(csr))
    assert csr.indices.tolist() == indices  # the user's matrix stays as it was
