"""Bits of rows are those of the naive twin."""

import numpy as np
import pytest

from penstock.csr import CSR
from penstock.kernels.cpu.row_prints import row_prints
from penstock.kernels.naive import row_prints as naive


@pytest.mark.parametrize("with_more", [False, True])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_bits_are_those_of_the_twin(kind, with_more):
    random = np.random.default_rng(0)
    csr = CSR.from_edges(*random.integers(0, 50, (2, 400)), 80)
    indices = csr.indices.astype(kind)
    more = random.integers(0, 2**64, len(indices), np.uint64) if with_more else None
    found = row_prints(csr.indptr, indices, more)
    np.testing.assert_array_equal(found, naive.row_prints(csr.indptr, indices, more))
    assert len(np.unique(found)) == np.count_nonzero(np.diff(csr.indptr)) + 1  # empty rows: 0
