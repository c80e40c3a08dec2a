import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.partition.order import beta, cover, legend, lower_bound, order, prefetch

SIZES = (6, 8, 10, 12, 14, 16)


def replay(made):
    """Run the steps with a buffer of our own; return the trained buckets."""
    buffer = set(made.states[0])
    trained = set()
    for step, state in zip(made.steps, made.states, strict=True):
        assert buffer == set(state) == set(step.buffer)
        assert len(buffer) == min(made.partitions, made.capacity)
        for bucket in (*step.before, *step.during):
            assert set(bucket) <= buffer
            assert bucket not in trained
            trained.add(bucket)
        for bucket in step.during:
            assert not set(bucket) & set(step.evict)
        assert set(step.evict) <= buffer
        buffer = (buffer - set(step.evict)) | set(step.load)
    assert buffer == set(made.states[-1])
    assert not made.steps[-1].evict
    assert not made.steps[-1].load
    return trained


def all_buckets(n):
    return {(i, j) for i in range(n) for j in range(n)}


def newest_is_never_evicted(made):
    for first, second, third in zip(made.states, made.states[1:], made.states[2:], strict=False):
        if not set(second) - set(first) <= set(third):
            return False
    return True


def test_counts_of_the_published_table():
    assert [beta(n).io for n in SIZES] == [8, 15, 24, 35, 48, 63]
    assert [prefetch(n).io for n in SIZES] == [8, 14, 22, 33, 45, 60]
    published = [8, 16, 24, 36, 50, 66]
    assert all(prefetch(n).io <= io for n, io in zip(SIZES, published, strict=True))
    assert cover(16).io == 80
    assert cover(16).volume == 5.0


@pytest.mark.parametrize("n", [*range(4, 17), 32])
def test_prefetch_meets_the_lower_bound_and_hides_every_swap(n):
    made = prefetch(n)
    assert len(made.steps) == made.io == (8 if n == 6 else math.ceil((n * (n - 1) / 2 - 1) / 2))
    assert made.io <= min(beta(n).io, legend(n).io)
    assert newest_is_never_evicted(made)
    assert made.keeps_newest
    assert made.hidden_share == 1
    assert replay(made) == all_buckets(n)


@given(n=st.integers(1, 60), name=st.sampled_from(["prefetch", "beta", "legend"]))
@settings(max_examples=30, deadline=None)
def test_every_bucket_is_trained_once(n, name):
    made = order(name, n)
    assert replay(made) == all_buckets(n)
    assert lower_bound(n) <= made.io
    if name != "beta":
        assert newest_is_never_evicted(made)


@pytest.mark.parametrize("n", [4, 16, 64])
def test_cover_brings_each_pair_together_once(n):
    made = cover(n)
    pairs = [pair for state in made.states for pair in combinations(state, 2)]
    assert sorted(pairs) == list(combinations(range(n), 2))
    assert replay(made) == all_buckets(n)
    assert made.io == made.bound == n * (n - 1) // 3
    # Lines of one direction follow each other: together they hold every partition once.
    for first in range(0, len(made.states), n // 4):
        points = [p for state in made.states[first : first + n // 4] for p in state]
        assert sorted(points) == list(range(n))


def test_bad_requests_are_refused():
    for bad in (lambda: order("beta", 0), lambda: cover(8), lambda: prefetch(200, 4)):
        with pytest.raises(UsageError):
            bad()
