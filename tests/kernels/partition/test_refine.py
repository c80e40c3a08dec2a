import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu import refine as cpu
from penstock.kernels.naive import refine as naive


@st.composite
def problems(draw):
    nodes, k = draw(st.integers(2, 25)), draw(st.integers(2, 4))
    node = st.integers(0, nodes - 1)
    pairs = draw(st.sets(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])))
    pairs = sorted({*pairs, *((b, a) for a, b in pairs)})
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=nodes))])
    load = np.diff(indptr)
    parts = np.array(draw(st.lists(st.integers(0, k - 1), min_size=nodes, max_size=nodes)))
    bound = max(int(load.sum() / k * draw(st.floats(1, 2))), int(load.max()))
    return indptr, edges[:, 1].copy(), load, parts.astype(np.int32), k, bound


def cut(indptr, indices, parts):
    sources = np.repeat(np.arange(len(parts)), np.diff(indptr))
    return int(np.sum(parts[sources] != parts[indices]))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_cpu_equals_naive(problem):
    indptr, indices, load, parts, k, bound = problem
    for name in ("balance", "refine"):
        fast, slow = parts.copy(), parts.copy()
        moved = getattr(cpu, name)(indptr, indices, load, fast, k, bound, 4)
        assert moved == getattr(naive, name)(indptr, indices, load, slow, k, bound, 4)
        np.testing.assert_array_equal(fast, slow)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_refining_never_cuts_more_nor_breaks_the_bound_nor_empties_a_part(problem):
    indptr, indices, load, parts, k, bound = problem
    before, loads = cut(indptr, indices, parts), np.bincount(parts, load, k)
    used = np.unique(parts)
    cpu.refine(indptr, indices, load, parts, k, bound, 8)
    assert cut(indptr, indices, parts) <= before
    assert np.all(np.bincount(parts, load, k) <= np.maximum(loads, bound))
    assert set(used) <= set(np.unique(parts))


@settings(max_examples=80, deadline=None)
@given(problems())
def test_balancing_never_lifts_the_fullest_part(problem):
    indptr, indices, load, parts, k, bound = problem
    before = np.bincount(parts, load, k)
    cpu.balance(indptr, indices, load, parts, k, bound, 8)
    after = np.bincount(parts, load, k)
    assert after.max() <= max(before.max(), bound)
    assert np.all(after[before > bound] <= before[before > bound])


def test_everything_in_one_part_is_spread_to_the_bound():
    # A ring of 40: every node has load 2, so every bound can be met.
    nodes = np.arange(40)
    indices = np.stack([(nodes - 1) % 40, (nodes + 1) % 40], axis=1).ravel()
    indptr, load = 2 * np.arange(41), np.full(40, 2)
    parts = np.zeros(40, np.int32)
    cpu.balance(indptr, indices, load, parts, 4, 22, 8)
    assert np.bincount(parts, load, 4).max() <= 22


def test_a_stray_node_comes_home():
    # Two cliques of 5 with one edge between; node 0 sits with the wrong one.
    nodes = np.arange(10)
    together = nodes[:, None] // 5 == nodes // 5
    together[4, 5] = together[5, 4] = True
    sources, indices = np.nonzero(together & ~np.eye(10, dtype=bool))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(sources))])
    parts = np.array([1, 0, 0, 0, 0, 1, 1, 1, 1, 1], np.int32)
    assert cpu.refine(indptr, indices, np.diff(indptr), parts, 2, 30, 4) == 1
    assert cut(indptr, indices, parts) == 2
