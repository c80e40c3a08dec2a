"""Rows of ghosts and their gradients, on any threads."""

import numpy as np

from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo import exchange
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.thread_pool import ThreadPool


def test_gradients_are_added_in_the_order_of_ranks(
    make_graph, partitioned, on_threads, monkeypatch
):
    """By any number of threads, numbers whose sum depends on the order."""
    monkeypatch.setattr(exchange, "LEAST", 8)  # a small graph is cut into many pieces too
    graph = make_graph(90, 160, directed=True, features="dense", labels=3)
    partition, parts = partitioned(graph, 4), np.array([1.0, 1e8, -1e8, 3e-3], np.float32)

    def rank(comm):
        with open_local(comm, graph.path, partition, weighted=False) as local:
            for threads in (1, 2, 5):
                with ThreadPool(threads) as pool:
                    halo = Halo(comm, local, pool)
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
