import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.kernels.cpu import streaming as cpu
from penstock.kernels.naive import streaming as naive


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 30))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=80))
    edges = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return CSR.from_edges(edges[:, 0], edges[:, 1], nodes)


def run(backend, csr, k, capacity, passes=2, cut=0, price=0.3):
    parts = np.full(csr.rows, -1, np.int32)
    loads, counts = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for _ in range(passes):
        for piece in (csr.row_range(0, cut), csr.row_range(cut, csr.rows)):
            rows = piece.indptr, piece.indices, piece.first_row
            backend.stream_rows(*rows, parts, loads, counts, capacity, price)
    return parts, loads, counts


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 5), st.data())
def test_cpu_equals_naive_whatever_the_cut(csr, k, data):
    cut = data.draw(st.integers(0, csr.rows))
    capacity = data.draw(st.integers(0, csr.edges + 1))
    slow, fast = run(naive, csr, k, capacity), run(cpu, csr, k, capacity, cut=cut)
    for a, b in zip(slow, fast, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 5))
def test_the_running_sums_are_those_of_the_parts(csr, k):
    parts, loads, counts = run(cpu, csr, k, csr.edges)
    np.testing.assert_array_equal(loads, np.bincount(parts, csr.degrees(), k))
    np.testing.assert_array_equal(counts, np.bincount(parts, minlength=k))


@pytest.mark.parametrize("backend", [naive, cpu], ids=["naive", "cpu"])
def test_two_cliques_are_told_apart(backend):
    nodes = np.arange(16)
    together = nodes[:, None] // 8 == nodes // 8
    together[7, 8] = together[8, 7] = True
    sources, targets = np.nonzero(together & ~np.eye(16, dtype=bool))
    csr = CSR.from_edges(sources, targets, 16)
    parts, loads, _ = run(backend, csr, 2, int(1.03 * csr.edges / 2), price=0.02)
    assert len(set(parts[:8])) == 1
    assert len(set(parts[8:])) == 1
    assert loads.tolist() == [57, 57]
