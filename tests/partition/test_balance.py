import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.partition.balance import Balance, even_out, fill_empty, part_loads

assignments = st.integers(1, 6).flatmap(
    lambda k: st.tuples(st.just(k), st.lists(st.integers(0, k - 1), min_size=k, max_size=40))
)


@given(assignments)
def test_even_and_uneven_are_told_as_shares_of_the_mean(assignment):
    k, parts = assignment
    parts, loads = np.array(parts), np.arange(1, len(parts) + 1)
    balance = Balance.of(parts, loads, k)
    sums = [loads[parts == p].sum() for p in range(k)]
    counts = [np.sum(parts == p) for p in range(k)]
    assert balance.load == pytest.approx(max(sums) / np.mean(sums))
    assert balance.nodes == pytest.approx(max(counts) / np.mean(counts))
    np.testing.assert_array_equal(part_loads(parts, loads, k), sums)


def test_a_heavy_node_is_the_bound_where_it_makes_it_unreachable():
    loads = np.array([10, 1, 1, 1, 1, 1, 1, 1, 1, 2])
    alone = Balance.of(np.array([0, 1, 1, 1, 1, 2, 2, 2, 2, 2]), loads, 3)
    assert alone.reachable == pytest.approx(10 / (20 / 3))
    assert alone.within(1.05)
    assert not Balance.of(np.array([0, 0, 1, 1, 1, 2, 2, 2, 2, 2]), loads, 3).within(1.05)


@settings(max_examples=100)
@given(assignments, st.data())
def test_free_nodes_even_out_the_counts_as_far_as_they_go(assignment, data):
    k, parts = assignment
    parts = np.array(parts, np.int32)
    free = np.array(sorted(data.draw(st.sets(st.integers(0, len(parts) - 1)))), dtype=np.int64)
    fixed = np.delete(parts, free)
    even_out(parts, free, k)
    np.testing.assert_array_equal(np.delete(parts, free), fixed)
    # The truth: one node at a time to the part with the fewest.
    counts = np.bincount(fixed, minlength=k)
    for _ in free:
        counts[np.argmin(counts)] += 1
    assert sorted(np.bincount(parts, minlength=k)) == sorted(counts)


@settings(max_examples=100)
@given(assignments)
def test_no_part_stays_empty(assignment):
    k, parts = assignment
    parts = np.array(parts, np.int32)
    empty = k - len(np.unique(parts))
    assert fill_empty(parts, np.ones(len(parts), np.int64), k) == empty
    assert len(np.unique(parts)) == k
