import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.kernels.cpu import adjacency as cpu
from penstock.kernels.naive import adjacency as naive


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 25))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    edges = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return CSR.from_edges(edges[:, 0], edges[:, 1], nodes)


def symmetric(backend, csr, cut):
    """Return (indptr, indices) made from two row ranges."""
    pieces = [csr.row_range(0, cut), csr.row_range(cut, csr.rows)]
    counts = np.zeros(csr.rows, np.int64)
    for piece in pieces:
        backend.reverse_counts(counts, piece.indices)
    in_indptr = np.concatenate([[0], np.cumsum(counts)])
    cursor, in_indices = in_indptr[:-1].copy(), np.full(csr.edges, -1, np.int32)
    for piece in pieces:
        backend.reverse_rows(cursor, in_indices, piece.indptr, piece.indices, piece.first_row)
    lists = [(p.indptr, p.indices, p.first_row, in_indptr, in_indices) for p in pieces]
    counts = np.concatenate([backend.neighbour_counts(*rows) for rows in lists])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    out = np.full(indptr[-1], -1, np.int64)
    for piece, rows in zip(pieces, lists, strict=True):
        backend.neighbour_lists(*rows, indptr[piece.first_row :], out)
    return indptr, out


@settings(max_examples=100, deadline=None)
@given(graphs(), st.data())
def test_both_backends_equal_scipys_symmetric_pattern(csr, data):
    cut = data.draw(st.integers(0, csr.rows))
    matrix = sp.csr_matrix((np.ones(csr.edges), csr.indices, csr.indptr), shape=(csr.rows,) * 2)
    pattern = matrix + matrix.T
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    pattern.sort_indices()
    for backend in (naive, cpu):
        indptr, indices = symmetric(backend, csr, cut)
        np.testing.assert_array_equal(indptr, pattern.indptr)
        np.testing.assert_array_equal(indices, pattern.indices)


def test_an_undirected_graph_needs_no_reverse():
    csr = CSR.from_edges(np.array([0, 0, 1, 1, 2, 1]), np.array([1, 1, 0, 0, 2, 1]), 3)
    nothing = np.empty(0, np.int64), np.empty(0, np.int32)
    for backend in (naive, cpu):
        counts = backend.neighbour_counts(csr.indptr, csr.indices, 0, *nothing)
        assert counts.tolist() == [1, 1, 0]
