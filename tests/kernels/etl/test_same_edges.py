"""Edges that are the same as others: the compiled search finds what the naive one finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cpu import same_edges as cpu
from penstock.kernels.naive import same_edges as naive

KINDS = {"targets": [np.int32], "relations": [np.int32, np.int32]}
KINDS |= {"times": [np.int64, np.int64], "all": [np.int64, np.int32, np.float64]}


def rows(random, count, most, kinds):
    """Return sorted rows of random edges, some of them equal."""
    row = random.integers(0, 9, count)
    columns = [random.integers(0, most, count).astype(kind) for kind in kinds]
    order = np.lexsort([*reversed(columns), row])
    return np.searchsorted(row[order], np.arange(10)), [one[order] for one in columns]


@pytest.mark.parametrize("kind", KINDS)
@given(
    counts=st.tuples(st.integers(0, 400), st.integers(0, 200)),
    most=st.sampled_from([1, 3, 1000]),
    seed=st.integers(0, 999),
)
def test_same_edges(kind, counts, most, seed):
    random = np.random.default_rng(seed)
    (indptr, ours), (other_indptr, theirs) = (rows(random, n, most, KINDS[kind]) for n in counts)
    found = cpu.same_edges(indptr, ours, other_indptr, theirs)
    np.testing.assert_array_equal(found, naive.same_edges(indptr, ours, other_indptr, theirs))
    first, last = found
    for row in range(9):
        mine = [one[indptr[row] : indptr[row + 1]].tolist() for one in ours]
        mine = list(zip(*mine, strict=True))
        for i in range(other_indptr[row], other_indptr[row + 1]):
            edge = tuple(one[i].item() for one in theirs)
            assert first[i] == indptr[row] + sum(one < edge for one in mine)
            assert last[i] == first[i] + mine.count(edge)
