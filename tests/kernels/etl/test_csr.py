"""Edges become rows: the backends do what the naive twin does, and all do what SciPy does."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from penstock.csr import CSR
from penstock.kernels.cpu import csr as cpu
from penstock.kernels.cpu import degrees
from penstock.kernels.naive import csr as naive
from penstock.kernels.naive import degrees as naive_degrees

NODES = 97
STARTS = np.array([0, 10, 10, 50, NODES])
BOTH = [False, True]
COUNTS = pytest.mark.parametrize("count", [0, 1, 3000])


@pytest.fixture
def agree(backend, same):
    """Compare a function of arrays with the naive one, and return what that gives."""

    def agree(name, arrays, *rest, **how):
        truth = getattr(naive, name)(*arrays, *rest, **how)
        same(getattr(backend.module("csr"), name)(*map(backend.put, arrays), *rest, **how), truth)
        return truth

    return agree


@pytest.mark.parametrize("both_ways", BOTH)
@pytest.mark.parametrize("keep_loops", BOTH)
@pytest.mark.parametrize("typed", BOTH)
@COUNTS
def test_bin_edges(agree, both_ways, keep_loops, typed, count):
    random = np.random.default_rng(count)
    sources, targets = random.integers(0, NODES, (2, count)).astype(np.int32)
    relations = random.integers(0, 8, count).astype(np.int32) if typed else None
    how = {"both_ways": both_ways, "keep_loops": keep_loops}
    agree("bin_edges", (sources, targets, relations), STARTS, 7, 3, **how)


def test_bin_edges_of_64_bit_ids(agree):
    ends = np.random.default_rng(0).integers(0, 2**34, (2, 2000))
    starts = np.array([0, 2**20, 2**33, 2**34 - 5, 2**34])
    agree("bin_edges", (*ends, None), starts, 34, 0, both_ways=True, keep_loops=True)


@pytest.mark.parametrize("bits", [1, 10, 11, 12, 33, 64])
@pytest.mark.parametrize("with_order", BOTH)
@pytest.mark.parametrize("skip", [0, 1])
def test_sort_keys_is_stable(agree, bits, with_order, skip):
    random = np.random.default_rng(bits)
    keys = random.integers(0, 2**63, 5000).astype(np.uint64) >> np.uint64(64 - bits)
    keys[::3] = keys[0]
    before = keys.copy()
    agree("sort_keys", (keys,), bits, with_order=with_order, skip=skip)
    np.testing.assert_array_equal(keys, before)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("keys_differ", [1, 40, 4000])
@COUNTS
def test_sort_times_sorts_equal_keys_alone(agree, dtype, keys_differ, count):
    random = np.random.default_rng(count)
    keys = np.sort(random.integers(0, keys_differ, count)).astype(np.uint64)
    order = random.permutation(count).astype(np.int32)
    times = random.integers(-20, 20, count).astype(dtype)
    truth = agree("sort_times", (keys, order, times))
    places = {int(edge): place for place, edge in enumerate(order)}
    ranks = [(int(k), float(t), places[int(e)]) for k, e, t in zip(keys, *truth, strict=True)]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("timed", BOTH)
@pytest.mark.parametrize("once", BOTH)
@COUNTS
def test_compare_directions(backend, same, timed, once, count):
    random = np.random.default_rng(count)
    keys = np.sort(random.integers(0, 1000, count)) * 2 + random.integers(0, 2, count)
    keys, times = keys.astype(np.uint64), np.sort(random.integers(0, 4, count)) if timed else None
    given = backend.put(keys), backend.put(times)
    *got, pairs = backend.module("csr").compare_directions(*given, once=once)
    *truth, expected = naive.compare_directions(keys, times, once=once)
    same(tuple(got), tuple(truth))
    assert pairs == expected


@pytest.mark.parametrize("merge", BOTH)
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_build_rows_tells_edges_apart_by_time(backend, same, merge, dtype):
    random = np.random.default_rng(3)
    keys = np.sort(random.integers(0, 1 << 9, 3000)).astype(np.uint64)
    times = random.integers(0, 4, 3000)
    times = times[np.lexsort((times, keys))].astype(dtype)
    truth = naive.build_rows(keys, 32, 4, 0, merge=merge, times=times)
    module = backend.module("csr")
    got = module.build_rows(backend.put(keys), 32, 4, 0, merge=merge, times=backend.put(times))
    same(got, truth)
    pairs = set(zip(keys.tolist(), times.tolist(), strict=True))
    assert len(truth[1]) == (len(pairs) if merge else 3000)


@pytest.mark.parametrize("merge", BOTH)
@pytest.mark.parametrize("relation_bits", [0, 3])
@COUNTS
def test_build_rows(agree, merge, relation_bits, count):
    random = np.random.default_rng(1)
    keys = np.sort(random.integers(0, 1 << (5 + 4 + relation_bits), count)).astype(np.uint64)
    agree("build_rows", (keys,), 32, 4, relation_bits, merge=merge)


@pytest.mark.parametrize("how", ["sum", "max", "min", "first"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_merge_values(agree, how, dtype):
    random = np.random.default_rng(2)
    values = (random.random(1000) * 1000).astype(dtype)
    order = random.permutation(1000).astype(np.int32)
    first = np.append(np.unique(random.integers(0, 1000, 300)), 1000)
    first[0] = 0
    agree("merge_values", (values, order, first), how)


@settings(deadline=None, max_examples=25)
@given(
    arrays(np.int32, st.tuples(st.just(2), st.integers(0, 60)), elements=st.integers(0, 20)),
    st.lists(st.integers(0, 21), max_size=4),
    st.booleans(),
)
def test_edges_become_the_matrix_scipy_makes(edges, cuts, both_ways):
    sources, targets = map(np.ascontiguousarray, edges)
    starts = np.array([0, *sorted(cuts), 21])
    how = {"both_ways": both_ways, "keep_loops": True}
    keys, _, offsets = cpu.bin_edges(sources, targets, None, starts, 5, 0, **how)
    blocks = []
    for b, rows in enumerate(np.diff(starts)):
        part, _ = cpu.sort_keys(keys[offsets[b] : offsets[b + 1]], 10, with_order=False)
        indptr, indices, _, first = cpu.build_rows(part, rows, 5, 0, merge=True)
        blocks.append(sp.csr_matrix((np.diff(first), indices, indptr), shape=(rows, 21)).toarray())
    truth = np.zeros((21, 21), np.int64)
    np.add.at(truth, (sources, targets), 1)
    if both_ways:
        other = sources != targets
        np.add.at(truth, (targets[other], sources[other]), 1)
    np.testing.assert_array_equal(np.concatenate(blocks), truth)


@pytest.mark.parametrize("inward", BOTH)
@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
def test_degrees_add_up_over_row_ranges(inward, kept):
    random = np.random.default_rng(3)
    csr = CSR.from_edges(*random.integers(0, 50, (2, 600)), 50)
    keep = random.random(50) < kept
    truth, got = np.zeros(50, np.int64), np.zeros(50, np.int64)
    naive_degrees.add_degrees(csr.indptr, csr.indices, 0, keep, truth, inward=inward)
    for start, stop in ((0, 20), (20, 20), (20, 50)):
        part = csr.row_range(start, stop)
        degrees.add_degrees(part.indptr, part.indices, part.first_row, keep, got, inward=inward)
    np.testing.assert_array_equal(got, truth)
    dense = np.zeros((50, 50), np.int64)
    np.add.at(dense, (csr.sources(), csr.indices), 1)
    dense[~keep], dense[:, ~keep] = 0, 0
    np.testing.assert_array_equal(got, dense.sum(1) + (dense.sum(0) if inward else 0))
