"""Sums over ranks; with MPI they are tested in test_halo.py, in the gang that runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.halo.gradients import GradientSum


@pytest.mark.parametrize("overlap", [True, False])
def test_all_that_were_started_are_summed(
    on_threads: Callable[..., list[Any]], overlap: bool
) -> None:
    def rank(comm: Any) -> None:
        sums = GradientSum(comm, overlap=overlap)
        together = np.arange(12, dtype=np.float32) * (comm.rank + 1)
        for _ in range(2):
            parts = [together[8:], together[:8].reshape(2, 4)]
            for part in parts:
                sums.start(part)
                sums.test()
            sums.wait()
        assert sums.sent_bytes == 2 * together.nbytes
        np.testing.assert_array_equal(together, np.arange(12) * 6 * 3)

    on_threads(3, rank)


def test_one_rank_sums_nothing(on_threads: Callable[..., list[Any]]) -> None:
    def rank(comm: Any) -> None:
        clock = Clock()
        sums, array = GradientSum(comm, clock=clock), np.ones(3)
        sums.start(array)
        sums.test()
        sums.wait()
        assert array.tolist() == [1, 1, 1]
        assert sums.sent_bytes == 0
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

        sums = GradientSum(comm, wait=follow)
        sums.wait()
        assert waited == [], "there is nothing to wait for"
        sums.start(np.ones(3))
        sums.start(np.ones(2))
        sums.wait()
        return waited

    assert on_threads(2, rank) == [[2]] * 2
