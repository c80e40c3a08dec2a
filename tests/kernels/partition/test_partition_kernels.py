"""The kernels of partitioning: the CPU's equal the naive ones, and both do what they promise."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR
from penstock.kernels.cpu import adjacency, greedy, halo, refine, streaming
from penstock.kernels.naive import adjacency as naive_adjacency
from penstock.kernels.naive import greedy as naive_greedy
from penstock.kernels.naive import halo as naive_halo
from penstock.kernels.naive import refine as naive_refine
from penstock.kernels.naive import streaming as naive_streaming


@st.composite
def graphs(draw, nodes=40, edges=80):
    """Draw a directed graph with loops, parallel edges, isolated nodes and nodes of many edges."""
    count = draw(st.integers(1, nodes))
    node = st.integers(0, count - 1)
    hub = st.integers(0, min(2, count - 1))
    pairs = draw(st.lists(st.tuples(hub | node, node), max_size=edges))
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    return CSR.from_edges(ends[:, 0], ends[:, 1], count)


def matrix(csr):
    return sp.csr_matrix((np.ones(csr.edges), csr.indices, csr.indptr), shape=(csr.rows,) * 2)


def in_two(csr, cut):
    return csr.row_range(0, cut), csr.row_range(cut, csr.rows)


# -- adjacency ---------------------------------------------------------------------------------


def symmetric(kernels, csr, cut):
    """Return (indptr, indices) made from two row ranges."""
    pieces = in_two(csr, cut)
    in_indices = csr.sources()[np.argsort(csr.indices, kind="stable")].astype(np.int32)
    in_indptr = np.cumsum([0, *np.bincount(csr.indices, minlength=csr.rows)])
    lists = [(p.indptr, p.indices, p.first_row, in_indptr, in_indices) for p in pieces]
    counts = np.concatenate([kernels.neighbour_counts(*rows) for rows in lists])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    out = np.full(indptr[-1], -1, np.int64)
    for piece, rows in zip(pieces, lists, strict=True):
        kernels.neighbour_lists(*rows, indptr[piece.first_row :], out)
    return indptr, out


@settings(max_examples=30, deadline=None)
@given(graphs(), st.data())
def test_neighbours_both_ways_are_scipys(csr, data):
    cut = data.draw(st.integers(0, csr.rows))
    pattern = matrix(csr) + matrix(csr).T
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    pattern.sort_indices()
    for kernels in (naive_adjacency, adjacency):
        indptr, indices = symmetric(kernels, csr, cut)
        np.testing.assert_array_equal(indptr, pattern.indptr)
        np.testing.assert_array_equal(indices, pattern.indices)


# -- by load -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 7))
def test_placing_by_load_keeps_the_bound_of_list_scheduling(load, k):
    load = np.array(load, dtype=np.int64)
    parts = greedy.place_by_load(load, k)
    assert parts.dtype == np.int32
    np.testing.assert_array_equal(parts, naive_greedy.place_by_load(load, k))
    sums = np.bincount(parts, weights=load, minlength=k)
    assert sums.max() <= load.sum() / k + load.max() * (1 - 1 / k) + 1e-9


# -- streaming ---------------------------------------------------------------------------------


def streamed(kernels, csr, k, capacity, cut=0, price=0.3):
    parts = np.full(csr.rows, -1, np.int32)
    loads, counts = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for _ in range(2):
        for piece in in_two(csr, cut):
            rows = piece.indptr, piece.indices, piece.first_row
            kernels.stream_rows(*rows, parts, loads, counts, capacity, price)
    return parts, loads, counts


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(1, 5), st.data())
def test_streaming_is_the_same_whatever_the_cut(csr, k, data):
    cut = data.draw(st.integers(0, csr.rows))
    capacity = data.draw(st.integers(0, csr.edges + 1))
    slow = streamed(naive_streaming, csr, k, capacity)
    for one, other in zip(slow, streamed(streaming, csr, k, capacity, cut), strict=True):
        np.testing.assert_array_equal(one, other)
    parts, loads, counts = slow
    np.testing.assert_array_equal(loads, np.bincount(parts, csr.degrees(), k))
    np.testing.assert_array_equal(counts, np.bincount(parts, minlength=k))


# -- refining ----------------------------------------------------------------------------------


@st.composite
def problems(draw):
    csr, k = draw(graphs(25)), draw(st.integers(2, 4))
    pattern = matrix(csr) + matrix(csr).T
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    indptr, load = pattern.indptr.astype(np.int64), np.diff(pattern.indptr).astype(np.int64)
    parts = draw(st.lists(st.integers(0, k - 1), min_size=csr.rows, max_size=csr.rows))
    bound = max(int(load.sum() / k * draw(st.floats(1, 2))), int(load.max()))
    return indptr, pattern.indices.astype(np.int64), load, np.array(parts, np.int32), k, bound


def cut_of(indptr, indices, parts):
    sources = np.repeat(np.arange(len(parts)), np.diff(indptr))
    return int(np.sum(parts[sources] != parts[indices]))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_refining_cuts_less_within_the_bound_and_balancing_lifts_no_part(problem):
    indptr, indices, load, given_parts, k, bound = problem
    before = np.bincount(given_parts, load, k)
    for name in ("balance", "refine"):
        parts, slow = given_parts.copy(), given_parts.copy()
        moved = getattr(refine, name)(indptr, indices, load, parts, k, bound, 4)
        assert moved == getattr(naive_refine, name)(indptr, indices, load, slow, k, bound, 4)
        np.testing.assert_array_equal(parts, slow)
        after = np.bincount(parts, load, k)
        assert after.max() <= max(before.max(), bound)
        if name == "refine":
            assert np.all(after <= np.maximum(before, bound))
            assert cut_of(indptr, indices, parts) <= cut_of(indptr, indices, given_parts)
            assert set(given_parts) <= set(parts)


# -- the halo ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(graphs(60, 120), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_local_rows_are_the_naive_ones(csr, k, seed):
    parts = np.random.default_rng(seed).integers(0, k, csr.rows).astype(np.int32)
    rank = seed % k
    counts = np.bincount(parts, minlength=k)
    own, counts[rank] = counts[rank], 0
    bounds = (own + np.cumsum(counts) - counts).astype(np.int32)
    # Nodes of the rank are numbered first, then those of the others, part by part.
    local = np.empty(len(parts), np.int32)
    local[np.lexsort([np.arange(len(parts)), parts, parts != rank])] = np.arange(len(parts))
    arguments = csr.indptr, csr.indices, local, bounds, seed % 3 > 0
    for fast, slow in zip(
        halo.local_rows(*arguments), naive_halo.local_rows(*arguments), strict=True
    ):
        np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("dtype", ["int32", "float32", "int64", "float64"])
def test_gathered_rows_follow_each_other(dtype):
    indptr, column = np.array([0, 2, 2, 5]), np.array([1, 2, 3, 4, 5], dtype=dtype)
    for kernels in (naive_halo, halo):
        gathered = kernels.gather_rows(indptr, np.array([2, 1, 0], np.int32), column)
        assert gathered.dtype == dtype
        assert gathered.tolist() == [3, 4, 5, 1, 2]
        assert kernels.gather_rows(indptr, np.empty(0, np.int32), column).shape == (0,)


def test_foreign_nodes_are_marked_and_others_left():
    for kernels in (naive_halo, halo):
        mark = np.zeros(4, bool)
        parts = np.array([0, 1, 0, 2], np.int32)
        kernels.mark_foreign(np.array([0, 1, 2], np.int32), parts, 0, mark)
        assert mark.tolist() == [False, True, False, False]
