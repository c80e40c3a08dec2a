"""From edges in tables to a batch: both backends agree, whatever the ids."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu import small_graphs as cpu
from penstock.kernels.naive import small_graphs as naive

IDS = st.one_of(
    st.integers(0, 6), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0])
)
ROWS = st.lists(st.tuples(IDS, IDS, st.sampled_from([0, 0, 0, 1, 2, 3])), max_size=12)


@settings(max_examples=25)
@given(st.lists(ROWS, max_size=5), st.booleans(), st.booleans(), st.booleans(), st.randoms())
def test_backends_agree(graphs, directed, weighted, added, random):
    rows = [row for graph in graphs for row in graph]
    starts = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    sources = np.array([row[0] for row in rows], np.int64)
    targets = np.array([row[1] for row in rows], np.int64)
    flags = np.array([row[2] for row in rows], np.uint8)
    found = cpu.number_nodes(starts, sources, targets, flags)
    wanted = naive.number_nodes(starts, sources, targets, flags)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    _, ptr, us, vs = found
    weights = np.array([random.random() for _ in rows]) if weighted else None
    kind = {"directed": directed, "added": added}
    mine = cpu.rows_of_edges(starts, ptr, us, vs, weights, **kind)
    theirs = naive.rows_of_edges(starts, ptr, us, vs, weights, **kind)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    assert not cpu.parallel_edges(mine[0], mine[1])
    loops = [module.self_loops(ptr, mine[0], mine[1]) for module in (cpu, naive)]
    np.testing.assert_array_equal(*loops)
    columns = [column for column in mine[2:] if column is not None]
    bits = [module.structures(ptr, *mine[:2], *columns) for module in (cpu, naive)]
    np.testing.assert_array_equal(*bits)


@pytest.mark.parametrize("backend", [cpu, naive], ids=["cpu", "naive"])
def test_parallel_edges_are_seen_within_rows_only(backend):
    indptr = np.array([0, 2, 4, 4])
    assert not backend.parallel_edges(indptr, np.array([0, 2, 2, 3], np.int32))
    assert backend.parallel_edges(indptr, np.array([0, 2, 3, 3], np.int32))
