from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from penstock.csr import CSR
from penstock.kernels.cpu import components as cpu
from penstock.kernels.naive import components as naive

BACKENDS = pytest.mark.parametrize("backend", [naive, cpu], ids=["naive", "cpu"])


@st.composite
def edge_lists(draw):
    nodes = draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    return nodes, np.array(edges, dtype=np.int64).reshape(-1, 2)


def by_scipy(nodes, edges):
    matrix = sp.coo_matrix((np.ones(len(edges)), edges.T), shape=(nodes, nodes))
    _, labels = connected_components(matrix, directed=False)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def labels_of(backend, csr, cuts=(0, None)):
    parent = backend.new_forest(csr.rows)
    for start, stop in pairwise(cuts):
        piece = csr.row_range(start, csr.rows if stop is None else stop)
        backend.union_rows(parent, piece.indptr, piece.indices, piece.first_row)
    return backend.component_labels(parent)


@BACKENDS
@settings(max_examples=60, deadline=None)
@given(graph=edge_lists(), data=st.data())
def test_labels_equal_scipys_whatever_the_cut(backend, graph, data):
    nodes, edges = graph
    csr = CSR.from_edges(edges[:, 0], edges[:, 1], nodes)
    cut = data.draw(st.integers(0, nodes))
    labels = labels_of(backend, csr, (0, cut, None))
    np.testing.assert_array_equal(labels, by_scipy(nodes, edges))
    assert labels.dtype == np.int32


def test_a_large_graph_equals_scipys():
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 200_000, (150_000, 2))
    csr = CSR.from_edges(edges[:, 0], edges[:, 1], 200_000)
    cuts = (0, 50_000, 50_001, 180_000, None)
    np.testing.assert_array_equal(labels_of(cpu, csr, cuts), by_scipy(200_000, edges))


def test_a_long_path_given_backwards_stays_fast():
    # Without path halving this is quadratic: 10^10 steps.
    nodes = 100_000
    sources, targets = np.arange(1, nodes), np.arange(nodes - 1)
    csr = CSR.from_edges(sources, targets, nodes)
    parent = cpu.new_forest(nodes)
    for start in range(nodes - 1000, -1, -1000):
        piece = csr.row_range(start, start + 1000)
        cpu.union_rows(parent, piece.indptr, piece.indices, start)
    assert np.all(cpu.component_labels(parent) == 0)


@BACKENDS
def test_mapped_arrays_are_read(backend, tmp_path):
    csr = CSR.from_edges(np.array([0, 3]), np.array([2, 3]), 4)
    np.save(tmp_path / "indptr.npy", csr.indptr)
    np.save(tmp_path / "indices.npy", csr.indices)
    parent = backend.new_forest(4)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")]
    backend.union_rows(parent, *mapped)
    assert backend.component_labels(parent).tolist() == [0, 1, 0, 2]


@BACKENDS
def test_no_nodes(backend):
    parent = backend.new_forest(0)
    backend.union_rows(parent, np.zeros(1, np.int64), np.zeros(0, np.int32))
    assert backend.component_labels(parent).shape == (0,)
