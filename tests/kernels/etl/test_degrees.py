import numpy as np
import pytest

from penstock.csr import CSR
from penstock.kernels.cpu import degrees as cpu
from penstock.kernels.naive import degrees as naive


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
def test_add_degrees_over_row_ranges(inward, kept):
    random = np.random.default_rng(3)
    csr = CSR.from_edges(*random.integers(0, 50, (2, 600)), 50)
    keep = random.random(50) < kept
    truth, got = np.zeros(50, np.int64), np.zeros(50, np.int64)
    naive.add_degrees(csr.indptr, csr.indices, 0, keep, truth, inward=inward)
    for start, stop in ((0, 20), (20, 20), (20, 50)):
        part = csr.row_range(start, stop)
        cpu.add_degrees(part.indptr, part.indices, part.first_row, keep, got, inward=inward)
    np.testing.assert_array_equal(got, truth)
    dense = np.zeros((50, 50), np.int64)
    np.add.at(dense, (csr.sources(), csr.indices), 1)
    dense[~keep], dense[:, ~keep] = 0, 0
    np.testing.assert_array_equal(got, dense.sum(1) + (dense.sum(0) if inward else 0))
