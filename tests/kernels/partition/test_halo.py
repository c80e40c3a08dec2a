import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.kernels.cpu import halo as cpu
from penstock.kernels.naive import halo as naive

BACKENDS = pytest.mark.parametrize("backend", [naive, cpu], ids=["naive", "cpu"])


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 60))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(st.integers(0, min(2, nodes - 1)) | node, node), max_size=120))
    edges = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return CSR.from_edges(edges[:, 0], edges[:, 1], nodes)


def local_numbers(parts, rank):
    """Number the nodes of ``rank`` first, then those of the others, part by part."""
    order = np.lexsort([np.arange(len(parts)), parts, parts != rank])
    local = np.empty(len(parts), np.int32)
    local[order] = np.arange(len(parts))
    return local


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_local_rows_of_cpu_equal_naive(csr, k, seed):
    parts = np.random.default_rng(seed).integers(0, k, csr.rows).astype(np.int32)
    rank = seed % k
    arguments = csr.indptr, csr.indices, local_numbers(parts, rank), parts, rank, k
    slow, fast = naive.local_rows(*arguments), cpu.local_rows(*arguments)
    np.testing.assert_array_equal(fast[0], slow[0])
    np.testing.assert_array_equal(fast[1], slow[1])
    for row in range(csr.rows):
        assert np.all(np.diff(fast[0][csr.indptr[row] : csr.indptr[row + 1]]) >= 0)


@BACKENDS
@pytest.mark.parametrize("dtype", ["int32", "float32", "int64", "float64"])
def test_gathered_rows_follow_each_other(backend, dtype):
    indptr = np.array([0, 2, 2, 5])
    column = np.array([1, 2, 3, 4, 5], dtype=dtype)
    gathered = backend.gather_rows(indptr, np.array([2, 1, 0], np.int32), column)
    assert gathered.dtype == dtype
    assert gathered.tolist() == [3, 4, 5, 1, 2]
    assert backend.gather_rows(indptr, np.empty(0, np.int32), column).shape == (0,)


@BACKENDS
def test_foreign_nodes_are_marked_and_others_left(backend):
    parts = np.array([0, 1, 0, 2], np.int32)
    mark = np.zeros(4, bool)
    backend.mark_foreign(np.array([0, 1, 2], np.int32), parts, 0, mark)
    assert mark.tolist() == [False, True, False, False]
