import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from penstock.kernels.cpu import csr as cpu
from penstock.kernels.naive import csr as naive

NODES = 97
STARTS = np.array([0, 10, 10, 50, NODES])
TARGET_BITS, RELATION_BITS = 7, 3


def random_edges(count, seed):
    random = np.random.default_rng(seed)
    sources, targets = random.integers(0, NODES, (2, count)).astype(np.int32)
    return sources, targets, random.integers(0, 8, count).astype(np.int32)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("keep_loops", [False, True])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_bin_edges(backend, same, both_ways, keep_loops, typed, count):
    sources, targets, relations = random_edges(count, seed=count)
    relations = relations if typed else None
    how = {"both_ways": both_ways, "keep_loops": keep_loops}
    truth = naive.bin_edges(sources, targets, relations, STARTS, TARGET_BITS, RELATION_BITS, **how)
    got = backend.module("csr").bin_edges(
        *map(backend.put, (sources, targets, relations)), STARTS, TARGET_BITS, RELATION_BITS, **how
    )
    same(got, truth)


def test_bin_edges_of_64_bit_ids(backend, same):
    nodes = 2**34
    random = np.random.default_rng(0)
    sources, targets = random.integers(0, nodes, (2, 2000))
    starts = np.array([0, 2**20, 2**33, nodes - 5, nodes])
    how = {"both_ways": True, "keep_loops": True}
    truth = naive.bin_edges(sources, targets, None, starts, 34, 0, **how)
    got = backend.module("csr").bin_edges(
        backend.put(sources), backend.put(targets), None, starts, 34, 0, **how
    )
    same(got, truth)


@pytest.mark.parametrize("bits", [1, 10, 11, 12, 33, 64])
@pytest.mark.parametrize("with_order", [False, True])
@pytest.mark.parametrize("skip", [0, 1])
def test_sort_keys_is_stable(backend, same, bits, with_order, skip):
    random = np.random.default_rng(bits)
    keys = random.integers(0, 2**63, 5000).astype(np.uint64) >> np.uint64(64 - bits)
    keys[::3] = keys[0]
    before = keys.copy()
    how = {"with_order": with_order, "skip": skip}
    got = backend.module("csr").sort_keys(backend.put(keys), bits, **how)
    same(got, naive.sort_keys(keys, bits, **how))
    np.testing.assert_array_equal(keys, before)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
@pytest.mark.parametrize("keys_differ", [1, 40, 4000])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_sort_times_sorts_equal_keys_alone(backend, same, dtype, keys_differ, count):
    random = np.random.default_rng(count)
    keys = np.sort(random.integers(0, keys_differ, count)).astype(np.uint64)
    order = random.permutation(count).astype(np.int32)
    times = random.integers(-20, 20, count).astype(dtype)
    truth = naive.sort_times(keys, order, times)
    same(backend.module("csr").sort_times(*map(backend.put, (keys, order, times))), truth)
    places = {int(edge): place for place, edge in enumerate(order)}
    ranks = [(int(k), float(t), places[int(e)]) for k, e, t in zip(keys, *truth, strict=True)]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_compare_directions(backend, same, timed, once, count):
    random = np.random.default_rng(count)
    keys = np.sort(random.integers(0, 1000, count)) * 2 + random.integers(0, 2, count)
    keys, times = keys.astype(np.uint64), np.sort(random.integers(0, 4, count)) if timed else None
    compare = backend.module("csr").compare_directions
    *got, pairs = compare(backend.put(keys), backend.put(times), once=once)
    *truth, expected = naive.compare_directions(keys, times, once=once)
    same(tuple(got), tuple(truth))
    assert pairs == expected


@pytest.mark.parametrize("merge", [False, True])
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


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("relation_bits", [0, 3])
@pytest.mark.parametrize("count", [0, 1, 4000])
def test_build_rows(backend, same, merge, relation_bits, count):
    random = np.random.default_rng(1)
    keys = np.sort(random.integers(0, 1 << (5 + 4 + relation_bits), count)).astype(np.uint64)
    truth = naive.build_rows(keys, 32, 4, relation_bits, merge=merge)
    got = backend.module("csr").build_rows(backend.put(keys), 32, 4, relation_bits, merge=merge)
    same(got, truth)


@pytest.mark.parametrize("how", ["sum", "max", "min", "first"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_merge_values(backend, same, how, dtype):
    random = np.random.default_rng(2)
    values = (random.random(1000) * 1000).astype(dtype)
    order = random.permutation(1000).astype(np.int32)
    first = np.append(np.unique(random.integers(0, 1000, 300)), 1000)
    first[0] = 0
    truth = naive.merge_values(values, order, first, how)
    got = backend.module("csr").merge_values(*map(backend.put, (values, order, first)), how)
    same(got, truth)


@settings(deadline=None, max_examples=50)
@given(
    arrays(np.int32, st.tuples(st.just(2), st.integers(0, 60)), elements=st.integers(0, 20)),
    st.lists(st.integers(0, 21), max_size=4),
    st.booleans(),
)
def test_edges_become_the_matrix_scipy_makes(edges, cuts, both_ways):
    import scipy.sparse as sp

    sources, targets = np.ascontiguousarray(edges[0]), np.ascontiguousarray(edges[1])
    starts = np.array([0, *sorted(cuts), 21])
    keys, _, offsets = cpu.bin_edges(
        sources, targets, None, starts, 5, 0, both_ways=both_ways, keep_loops=True
    )
    dense = np.zeros((21, 21), np.int64)
    for b in range(len(starts) - 1):
        part, _ = cpu.sort_keys(keys[offsets[b] : offsets[b + 1]], 10, with_order=False)
        indptr, indices, _, first = cpu.build_rows(
            part, starts[b + 1] - starts[b], 5, 0, merge=True
        )
        block = sp.csr_matrix(
            (np.diff(first), indices, indptr), shape=(starts[b + 1] - starts[b], 21)
        )
        dense[starts[b] : starts[b + 1]] += block.toarray()
    truth = np.zeros((21, 21), np.int64)
    np.add.at(truth, (sources, targets), 1)
    if both_ways:
        other = sources != targets
        np.add.at(truth, (targets[other], sources[other]), 1)
    np.testing.assert_array_equal(dense, truth)
