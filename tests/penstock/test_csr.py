from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.errors import InputError


@st.composite
def edge_lists(draw):
    nodes = draw(st.integers(1, 20))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node, st.integers(0, 3)), max_size=80))
    array = np.array(edges, dtype=np.int64).reshape(-1, 3)
    return nodes, array[:, 0], array[:, 1], array[:, 2].astype(np.int32)


@given(edge_lists(), st.data())
def test_rows_are_those_of_scipy_and_cutting_and_joining_give_the_whole(graph, data):
    nodes, sources, targets, numbers = graph
    weights = (numbers + 1).astype(np.float32)
    csr = CSR.from_edges(sources, targets, nodes, weights=weights, relations=numbers)
    truth = sp.coo_matrix((numbers + 1, (sources, targets)), shape=(nodes, nodes)).tocsr()
    mine = sp.csr_matrix((csr.weights, csr.indices, csr.indptr), shape=(nodes, nodes))
    assert (mine != truth).nnz == 0
    assert (csr.indptr.dtype, csr.indices.dtype) == (np.int64, np.int32)
    np.testing.assert_array_equal(csr.degrees(), np.bincount(sources, minlength=nodes))
    # Neighbours ascend, and relations of equal ones.
    got = list(zip(csr.sources(), csr.indices, csr.relations, strict=True))
    assert got == sorted(zip(sources, targets, numbers, strict=True))
    cuts = sorted({0, nodes, *data.draw(st.lists(st.integers(0, nodes), max_size=4))})
    pieces = [csr.row_range(a, b) for a, b in pairwise(cuts)]
    for piece in pieces:
        assert piece.indptr[0] == 0
        rows = [s for s in csr.sources() if piece.first_row <= s < piece.first_row + piece.rows]
        np.testing.assert_array_equal(piece.sources(), rows)
    for (name, joined), (other, truth) in zip(
        CSR.concatenate(pieces).arrays(), csr.arrays(), strict=True
    ):
        assert (name, joined.dtype) == (other, truth.dtype)
        np.testing.assert_array_equal(joined, truth)


@pytest.mark.parametrize(
    ("sources", "targets"), [([0, 3], [1, 1]), ([0, 1], [-1, 1]), ([0, 1], [1])]
)
def test_bad_edges_are_refused(sources, targets):
    with pytest.raises(InputError):
        CSR.from_edges(np.array(sources), np.array(targets), 3)


def test_large_row_ranges_are_joined_in_order():
    nodes, edges = 1 << 16, 5 << 19  # beyond what one thread copies
    rng = np.random.default_rng(0)
    indptr = np.sort(np.concatenate([[0, edges], rng.integers(0, edges, nodes - 1)]))
    csr = CSR(indptr, rng.integers(0, nodes, edges, np.int32), weights=rng.random(edges))
    cuts = [0, 1, 2, 40_000, 40_000, nodes]
    pieces = [csr.row_range(*cut) for cut in pairwise(cuts)]
    joined = dict(CSR.concatenate(pieces).arrays())
    for name, there in csr.arrays():
        np.testing.assert_array_equal(joined[name], there)
