"""Rows of ghosts and their gradients: by shared memory and by messages, on any threads."""

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo import rows as halo_rows
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.thread_pool import ThreadPool

PATIENCE = 60


def one_way(rank):
    """Return two ranks of two nodes each, of which only the second reads rows of the first."""
    if rank == 0:
        return SimpleNamespace(owned=2, columns=2, send={1: np.array([0, 1])}, receive={})
    return SimpleNamespace(owned=2, columns=4, send={}, receive={0: slice(2, 4)})


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "messages"])
def test_gradients_are_added_in_the_order_of_ranks(
    make_graph, partitioned, on_threads, shared, monkeypatch
):
    """By any number of threads, numbers whose sum depends on the order."""
    monkeypatch.setattr(halo_rows, "LEAST", 8)  # a small graph is cut into many pieces too
    graph = make_graph(90, 160, directed=True, features="dense", labels=3)
    partition, parts = partitioned(graph, 4), np.array([1.0, 1e8, -1e8, 3e-3], np.float32)

    def rank(comm):
        with open_local(comm, graph.path, partition, weighted=False) as local:
            for threads in (1, 2, 5):
                with ThreadPool(threads) as pool:
                    halo = Halo(comm, local, shared=shared, pool=pool)
                    x = np.full((local.columns, 70), parts[comm.rank])
                    halo.start(x)
                    halo.wait()
                    owners = np.zeros(local.columns, int)
                    for peer, rows in local.receive.items():
                        owners[rows] = peer
                    ghosts = slice(local.owned, None)
                    np.testing.assert_array_equal(x[ghosts, 0], parts[owners[ghosts]])
                    x[:] = parts[comm.rank]
                    halo.start_backward(x)
                    halo.wait_backward(x)
                for row in range(local.owned):
                    expected = parts[comm.rank]
                    for peer in range(4):
                        if peer in local.send and row in local.send[peer]:
                            expected = expected + parts[peer]
                    assert (x[row] == expected).all()

    on_threads(4, rank)


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("way", ["there", "back"])
def test_a_slow_rank_is_not_written_over(way, slow, on_threads):
    """Its peer gets one exchange ahead and no further, also where no rows go to the peer."""
    ahead = threading.Event()

    def rank(comm):
        local = one_way(comm.rank)
        halo, before = Halo(comm, local), None
        for number in range(1, 7):
            x = np.full((local.columns, 3), number, np.float32)
            if comm.rank == slow and number == 4:
                # Exchange 3 was waited for, and its rows not yet read, while the other continues.
                assert ahead.wait(PATIENCE)
                check(halo, before, number - 1)
            start(halo, x)
            if comm.rank != slow and number == 4:
                # It cannot write what comes after.
                assert not any(halo.test() for _ in range(100))
                ahead.set()
            finish(halo, x, number)
            before = x
            if comm.rank != slow or number != 3:
                check(halo, x, number)

    def start(halo, x):
        halo.start(x, separate=True) if way == "there" else halo.start_backward(x)

    def finish(halo, x, number):
        if way == "there":
            halo.wait()
        else:
            halo.wait_backward(x)

    def check(halo, x, number):
        if way == "there":
            np.testing.assert_array_equal(halo.ghosts(x), np.full((len(x) - 2, 3), number))
        elif len(x) == 2:
            np.testing.assert_array_equal(x, np.full((2, 3), 2 * number))

    on_threads(2, rank)


@pytest.mark.parametrize("step", ["memfd_create", "open"])
@pytest.mark.parametrize("failing", [{0}])
def test_who_cannot_share_sends_messages(step, failing, on_threads, monkeypatch):
    real, which = getattr(os, step), threading.local()

    def refuse(*args, **how):
        if getattr(which, "rank", None) in failing and (step != "open" or "/fd/" in str(args[0])):
            raise PermissionError(step)
        return real(*args, **how)

    monkeypatch.setattr(os, step, refuse)

    def rank(comm):
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
        assert max(comm.sent, default=24) == 24

    on_threads(2, rank)
