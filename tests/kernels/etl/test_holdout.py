from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from penstock.kernels.naive import holdout as naive

LIMITS = (int(0.7 * 2**32), int(0.9 * 2**32))


def edges(dtype: Any = np.int32) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    sources, targets = random.integers(0, 2000, (2, 20_000)).astype(dtype)
    return sources, targets, random.integers(0, 5, 20_000).astype(np.int32)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_split_edges(backend: Any, same: Any, directed: bool, typed: bool, dtype: Any) -> None:
    sources, targets, relations = edges(dtype)
    relations = relations if typed else None
    truth = naive.split_edges(sources, targets, relations, 2**40 + 3, LIMITS, directed=directed)
    got = backend.module("holdout").split_edges(
        *map(backend.put, (sources, targets, relations)), 2**40 + 3, LIMITS, directed=directed
    )
    same(got, truth)


def test_fractions_and_seeds(backend: Any) -> None:
    split = backend.module("holdout").split_edges
    number = backend.put(np.arange(200_000, dtype=np.int32))
    splits = backend.get(split(number, number[::-1].copy(), None, 1, LIMITS, directed=True))
    counts = np.bincount(splits, minlength=3)
    expected = np.array([0.7, 0.2, 0.1]) * len(splits)
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    other = backend.get(split(number, number[::-1].copy(), None, 2, LIMITS, directed=True))
    assert 0.3 < np.mean(splits != other) < 0.6


def test_both_directions_go_the_same_way(backend: Any) -> None:
    sources, targets, _ = map(backend.put, edges())
    split = backend.module("holdout").split_edges
    there = backend.get(split(sources, targets, None, 5, LIMITS, directed=False))
    back = backend.get(split(targets, sources, None, 5, LIMITS, directed=False))
    np.testing.assert_array_equal(there, back)
    one_way = backend.get(split(targets, sources, None, 5, LIMITS, directed=True))
    assert np.any(one_way != back)
