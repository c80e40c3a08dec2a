"""Nearest neighbours: exact, whatever the blocks, the lower row first of equal scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cpu import neighbours as cpu
from penstock.kernels.naive import neighbours as naive


def vectors_of(rows, width, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("cosine", [True, False])
@pytest.mark.parametrize(("rows", "width", "k"), [(1000, 16, 10), (500, 3, 7), (300, 130, 1)])
def test_nearest_is_that_of_the_naive_twin(backend, rows, width, k, cosine):
    vectors = vectors_of(rows, width)
    queries = vectors[::3]
    skip = np.arange(0, rows, 3)[:, None]
    truth = naive.nearest(queries, vectors, k, cosine=cosine, skip=skip)
    put = backend.put
    got = backend.module("neighbours").nearest(
        put(queries), put(vectors), k, cosine=cosine, skip=put(skip)
    )
    np.testing.assert_array_equal(backend.get(got[0]), truth[0])
    np.testing.assert_allclose(backend.get(got[1]), truth[1], rtol=2e-7)
    assert not (backend.get(got[0]) == skip).any()


@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(0, 12),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_of_equal_scores_the_lower_row_is_first(backend, rows, width, k, cosine, seed):
    random = np.random.default_rng(seed)
    vectors = random.integers(-1, 2, (rows, width)).astype(np.float32)
    queries = random.integers(-1, 2, (5, width)).astype(np.float32)
    skip = random.integers(-1, rows, (5, 2))
    put = backend.put
    rows_found, scores = map(
        backend.get,
        backend.module("neighbours").nearest(
            put(queries), put(vectors), k, cosine=cosine, skip=put(skip)
        ),
    )
    truth = naive.nearest(queries, vectors, k, cosine=cosine, skip=skip)
    np.testing.assert_array_equal(rows_found, truth[0])
    np.testing.assert_allclose(scores, truth[1], rtol=2e-7)


@pytest.mark.parametrize("cosine", [True, False])
def test_equal_rows_tie_wherever_blocks_end(backend, monkeypatch, cosine):
    """BLAS may add differently at the edge of a block: equal rows still have equal scores."""
    module = backend.module("neighbours")
    one = vectors_of(1, 100)
    vectors = np.repeat(one, 997, axis=0)
    queries = np.concatenate([one, vectors_of(2, 100, seed=1)])
    for scores in (1 << 20, 3 * 50, 3 * 7):
        monkeypatch.setattr(module, "SCORES", scores)
        put = backend.put
        rows, found = module.nearest(put(queries), put(vectors), 20, cosine=cosine)
        np.testing.assert_array_equal(backend.get(rows), np.tile(np.arange(20), (3, 1)))
        assert (backend.get(found) == backend.get(found)[:, :1]).all()


def test_vectors_of_zeros_and_extreme_lengths(backend):
    """A vector of zeros is orthogonal to all; lengths that float32 cannot square do no harm."""
    directions = vectors_of(40, 8, seed=2)
    lengths = np.array([1e-25, 1e-3, 1.0, 1e18])[np.arange(40) % 4]
    vectors = (directions * lengths[:, None]).astype(np.float32)
    vectors[7] = 0
    for cosine in (True, False):
        truth = naive.nearest(vectors, vectors, 40, cosine=cosine)
        put = backend.put
        got = backend.module("neighbours").nearest(put(vectors), put(vectors), 40, cosine=cosine)
        np.testing.assert_allclose(backend.get(got[1]), truth[1], rtol=3e-7, atol=1e-7)
        if cosine:
            np.testing.assert_array_equal(backend.get(got[0]), truth[0])
    assert (backend.get(got[1])[7] == 0).all()


def test_fewer_rows_than_asked_for(backend):
    vectors = backend.put(vectors_of(3, 4))
    rows, scores = map(backend.get, backend.module("neighbours").nearest(vectors, vectors, 5))
    assert (rows[:, :3] >= 0).all()
    assert (rows[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()
    none = backend.module("neighbours").nearest(vectors, vectors[:0], 2)
    assert (backend.get(none[0]) == -1).all()


def test_nearest_of_near_ties_is_exact():
    """Scores that differ by less than a product in float32 can tell are put in order."""
    base = vectors_of(1, 64, seed=3).astype(np.float64)
    noise = vectors_of(4000, 64, seed=4).astype(np.float64)
    vectors = (base + 1e-4 * noise).astype(np.float32)
    truth = naive.nearest(vectors[:50], vectors, 25)
    got = cpu.nearest(vectors[:50], vectors, 25)
    np.testing.assert_array_equal(got[1], truth[1])
    np.testing.assert_array_equal(got[0], truth[0])
