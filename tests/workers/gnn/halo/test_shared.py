"""Rows that ranks of one host write into each other's memory, and who does not take part."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.workers.gnn.halo.exchange import Halo

PATIENCE = 60


def one_way(rank: int) -> Any:
    """Return two ranks of two nodes each, of which only the second reads rows of the first."""
    if rank == 0:
        return SimpleNamespace(owned=2, columns=2, send={1: np.array([0, 1])}, receive={})
    return SimpleNamespace(owned=2, columns=4, send={}, receive={0: slice(2, 4)})


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("way", ["there", "back"])
def test_a_slow_rank_is_not_written_over(way: str, slow: int, on_threads: Any) -> None:
    """Its peer gets one exchange ahead and no further, also where no rows go to the peer."""
    ahead = threading.Event()

    def rank(comm: Any) -> None:
        local = one_way(comm.rank)
        halo, before = Halo(comm, local), None
        for number in range(1, 7):
            x = np.full((local.columns, 3), number, np.float32)
            if comm.rank == slow and number == 4:
                # Exchange 3 was waited for, and its rows not yet read, while the other goes on.
                assert ahead.wait(PATIENCE)
                check(halo, before, number - 1)
            start(halo, x)
            if comm.rank != slow and number == 4:
                for _ in range(100):
                    halo.test()
                assert under_way(halo)  # it cannot write what comes after
                ahead.set()
            finish(halo, x, number)
            before = x
            if comm.rank != slow or number != 3:
                check(halo, x, number)

    def start(halo: Halo, x: Any) -> None:
        halo.start(x, separate=True) if way == "there" else halo.start_backward(x)

    def under_way(halo: Halo) -> bool:
        return bool(halo._forward if way == "there" else halo._backward)

    def finish(halo: Halo, x: Any, number: int) -> None:
        if way == "there":
            halo.wait()
        else:
            halo.wait_backward(x)

    def check(halo: Halo, x: Any, number: int) -> None:
        if way == "there":
            np.testing.assert_array_equal(halo.ghosts(x), np.full((len(x) - 2, 3), number))
        elif len(x) == 2:
            np.testing.assert_array_equal(x, np.full((2, 3), 2 * number))

    on_threads(2, rank)


@pytest.mark.parametrize("step", ["memfd_create", "open"])
@pytest.mark.parametrize("failing", [{0}])
def test_who_cannot_share_sends_messages(
    step: str, failing: set[int], on_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, which = getattr(os, step), threading.local()

    def refuse(*args: Any, **how: Any) -> Any:
        if getattr(which, "rank", None) in failing and (step != "open" or "/fd/" in str(args[0])):
            raise PermissionError(step)
        return real(*args, **how)

    monkeypatch.setattr(os, step, refuse)

    def rank(comm: Any) -> None:
        which.rank = comm.rank
        local = one_way(comm.rank)
        halo = Halo(comm, local)
        for number in (1, 2, 3):
            x = np.full((local.columns, 3), number, np.float32)
            halo.start(x, separate=True)
            halo.wait()
            np.testing.assert_array_equal(halo.ghosts(x), np.full((local.columns - 2, 3), number))
            halo.start_backward(x)
            halo.wait_backward(x)
            assert (x[:2] == (2 * number if comm.rank == 0 else number)).all()
        assert max(size for _, _, size in comm.messages) == 24

    on_threads(2, rank)
