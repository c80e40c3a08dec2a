"""Buckets: Numba does what the naive twin does; mixing is a permutation, and a fair one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.csr import CSR, offsets_of
from penstock.kernels.bucket_rules import BLOCK, Runs
from penstock.kernels.cpu import buckets as cpu
from penstock.kernels.naive import buckets as naive


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**20),
    nodes=st.integers(1, 40),
    edges=st.integers(0, 120),
    n=st.integers(1, 6),
    placed=st.booleans(),
    typed=st.booleans(),
    groups=st.integers(1, 5),
)
def test_counts_and_places_are_those_of_the_twin(seed, nodes, edges, n, placed, typed, groups):
    rng = np.random.default_rng(seed)
    columns = {}
    if typed:
        columns["relations"] = rng.integers(0, 5, edges).astype(np.int32)
        columns["weights"] = rng.random(edges, np.float32)
    csr = CSR.from_edges(*rng.integers(0, nodes, (2, edges)), nodes, **columns)
    # Some partitions may be empty, and first rows need not be 0.
    starts = np.sort(np.concatenate([[0, nodes], rng.integers(0, nodes + 1, n - 1)]))
    starts = starts.astype(np.int64)
    positions = rng.permutation(nodes).astype(np.int32) if placed else None
    first = int(rng.integers(0, nodes))
    csr = csr.row_range(first, nodes)
    drawn = (groups, 2**40 + seed, int(rng.integers(0, 2**35)))
    where = csr, starts, positions
    counts = naive.count_edges(*where, *drawn)
    assert counts.shape == (n * n * groups,)
    assert counts.sum() == csr.edges
    np.testing.assert_array_equal(cpu.count_edges(*where, *drawn), counts)
    at = offsets_of(counts)[:-1]
    found = []
    for kernels in (naive, cpu):
        heads, tails, relations = (np.full(csr.edges, -1, np.int32) for _ in range(3))
        weights = np.full(csr.edges, -1, np.float32)
        into = heads, tails, *((relations, weights) if typed else (None, None))
        kernels.scatter_edges(*where, at, into, *drawn)
        found.append((heads, tails, relations, weights))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    # Back from buckets to nodes: the same edges.
    order = np.arange(nodes) if positions is None else np.argsort(positions)
    bucket = np.repeat(np.arange(n * n), counts.reshape(n * n, groups).sum(axis=1))
    heads, tails, relations, weights = found[1]
    ends = order[starts[bucket // n] + heads], order[starts[bucket % n] + tails]
    got = sorted(zip(*ends, relations, weights, strict=True))
    kinds = (csr.relations, csr.weights) if typed else (np.full(csr.edges, -1),) * 2
    assert got == sorted(zip(csr.sources(), csr.indices, *kinds, strict=True))


def test_a_bucket_is_shuffled_as_the_twin_does_it():
    first = 2**33 + 7
    found = []
    for kernels in (naive, cpu):
        heads, tails = np.arange(300, dtype=np.int32), np.arange(300, dtype=np.int32) + 1000
        relations = np.arange(300, dtype=np.int32) + 5000
        weights = heads.astype(np.float32)
        kernels.shuffle_edges((heads, tails, relations, weights), 2**40 + 3, first)
        found.append(heads)
        np.testing.assert_array_equal(tails, heads + 1000)
        np.testing.assert_array_equal(relations, heads + 5000)
        np.testing.assert_array_equal(weights, heads)
        assert sorted(heads) == list(range(300))
    np.testing.assert_array_equal(*found)
    assert (found[0] == np.arange(300)).mean() < 0.1
    cpu.shuffle_edges((empty := np.empty(0, np.int32), empty, None, None), 0, 0)


def test_every_order_of_a_bucket_is_as_likely():
    counts = {}
    for trial in range(6000):
        heads = np.arange(3, dtype=np.int32)
        cpu.shuffle_edges((heads, heads.copy(), None, None), 5, 3 * trial)
        counts[tuple(heads)] = counts.get(tuple(heads), 0) + 1
    assert len(counts) == 6
    assert sum((c - 1000) ** 2 / 1000 for c in counts.values()) < 20.5  # p = 0.001, 5 degrees


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 600), st.integers(0, 2**60), st.integers(0, 2**40))
def test_a_permutation_is_one_and_the_twins(count, seed, which):
    keys = naive.mix_keys(seed, which)
    np.testing.assert_array_equal(cpu.mix_keys(seed, which), keys)
    found = [cpu.permuted(index, count, keys) for index in range(count)]
    assert found == [naive.permuted(index, count, keys) for index in range(count)]
    assert sorted(found) == list(range(count))


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**20),
    sizes=st.lists(st.integers(0, 3 * BLOCK), min_size=1, max_size=6),
    typed=st.booleans(),
)
def test_mixed_edges_are_all_edges_of_their_runs_once(seed, sizes, typed):
    rng = np.random.default_rng(seed)
    offsets = offsets_of(np.array(sizes))
    count = int(offsets[-1])
    begins = offsets[:-1] + np.arange(len(sizes)) * 3  # with gaps between
    edges = count + 3 * len(sizes)
    heads = np.arange(edges, dtype=np.int32)
    tails, relations = heads + 10_000, (heads + 20_000 if typed else None)
    weights = None if typed else heads / np.float32(8)
    raised = [rng.integers(0, 2**20, len(sizes)) for _ in range(2)]
    keys = naive.mix_keys(seed, 3)
    wanted = [
        (h + raised[0][k], h + 10_000 + raised[1][k])
        for k in range(len(sizes))
        for h in range(begins[k], begins[k] + sizes[k])
    ]
    found = []
    for kernels in (naive, cpu):
        got = []
        size = int(rng.integers(1, 2 * BLOCK))
        for start in range(0, count, size):
            n = min(size, count - start)
            out = (
                *np.empty((2, n), np.int64),
                np.empty(n, np.int32) if typed else None,
                None if typed else np.empty(n, np.float32),
            )
            given = (heads, tails, relations, weights), Runs(begins, offsets, *raised, keys)
            kernels.mix_edges(*given, count, start, out)
            got += list(zip(*(a for a in out if a is not None), strict=True))
        found.append(got)
    assert found[0] == found[1]
    assert sorted(edge[:2] for edge in found[0]) == sorted(wanted)
    of = {
        (h + raised[0][k], h): k
        for k in range(len(sizes))
        for h in range(begins[k], begins[k] + sizes[k])
    }
    for head, _, more in found[0]:
        assert (head, more - 20_000 if typed else int(8 * more)) in of


def test_batches_are_samples_of_all_runs():
    sizes = np.array([50_000, 30_000, 20_000])
    offsets = offsets_of(sizes)
    edges = np.repeat(np.arange(3, dtype=np.int32), sizes)
    zero = np.zeros(3, np.int64)
    for start in (0, 40_000, 90_000):
        out = *np.empty((2, 8000), np.int64), None, None
        runs = Runs(offsets[:-1], offsets, zero, zero, cpu.mix_keys(0, start))
        cpu.mix_edges((edges, edges, None, None), runs, 100_000, start, out)
        shares = np.bincount(out[0], minlength=3) / 8000
        # 500 blocks: a standard deviation of 0.022.
        np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.09)


@pytest.mark.gpu
@pytest.mark.parametrize(("row", "wide"), [("i4", "i4"), ("i4", "i8"), ("i8", "i8")])
@pytest.mark.parametrize("typed", [True, False])
def test_edges_are_mixed_on_a_gpu_as_on_the_cpu(row, wide, typed):
    import cupy as cp

    from penstock.kernels.cuda import buckets as cuda

    rng = np.random.default_rng(1)
    sizes = np.array([70_000, 0, 33, 12_345])
    offsets, count = offsets_of(sizes), int(sizes.sum())
    heads, tails = (rng.integers(0, 9999, count + 20).astype(row) for _ in range(2))
    relations = rng.integers(0, 9, count + 20).astype(np.int32) if typed else None
    weights = None if typed else rng.random(count + 20, np.float32)
    begins, raised = offsets[:-1] + 5, [rng.integers(0, 10**6, 4) for _ in range(2)]
    found = []
    for kernels, xp in ((cpu, np), (cuda, cp)):
        columns = tuple(
            None if column is None else xp.asarray(column)
            for column in (heads, tails, relations, weights)
        )
        runs = Runs(*map(xp.asarray, (begins, offsets, *raised, cpu.mix_keys(4, 2))))
        kinds = wide, wide, "i4" if typed else None, None if typed else "f4"
        out = tuple(None if kind is None else xp.empty(5000, kind) for kind in kinds)
        for start in (0, 777, count - 5000):
            kernels.mix_edges(columns, runs, count, start, out)
            found.append([None if array is None else array.copy() for array in out])
    for one, other in zip(found[:3], found[3:], strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_array_equal(mine, cp.asnumpy(theirs))
