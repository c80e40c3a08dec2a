"""Sums over ranks; with MPI they are tested in test_halo.py, in the gang that runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.halo.gradients import GradientReducer


@pytest.mark.parametrize("overlap", [True, False])
def test_all_that_were_started_are_summed(
    on_threads: Callable[..., list[Any]], overlap: bool
) -> None:
    def rank(comm: Any) -> None:
        reducer = GradientReducer(comm, overlap=overlap)
        together = np.arange(12, dtype=np.float32) * (comm.rank + 1)
        for _ in range(2):
            parts = [together[8:], together[:8].reshape(2, 4)]
            for part in parts:
                reducer.start(part)
                reducer.test()
            reducer.wait()
        assert reducer.sent_bytes == 2 * together.nbytes
        np.testing.assert_array_equal(together, np.arange(12) * 6 * 3)

    on_threads(3, rank)


def test_one_rank_sums_nothing(on_threads: Callable[..., list[Any]]) -> None:
    def rank(comm: Any) -> None:
        clock = Clock()
        reducer, array = GradientReducer(comm, clock=clock), np.ones(3)
        reducer.start(array)
        reducer.test()
        reducer.wait()
        assert array.tolist() == [1, 1, 1]
        assert reducer.sent_bytes == 0
        assert clock.totals() == {}

    rank(SingleRank())
    on_threads(1, rank)


def test_another_way_to_wait_takes_the_place_of_the_ranks(
    on_threads: Callable[..., list[Any]],
) -> None:
    def rank(comm: Any) -> list[int]:
        waits, comm.wait = comm.wait, None
        waited: list[int] = []

        def follow(requests: Any) -> None:
            waited.append(len(requests))
            waits(requests)

        reducer = GradientReducer(comm, wait=follow)
        reducer.wait()
        assert waited == [], "there is nothing to wait for"
        reducer.start(np.ones(3))
        reducer.start(np.ones(2))
        reducer.wait()
        return waited

    assert on_threads(2, rank) == [[2]] * 2
