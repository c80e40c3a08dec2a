"""Rows are packed and added by all threads of a rank, with the same result as by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo import rows as halo_rows
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.thread_pool import ThreadPool


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "messages"])
def test_any_number_of_threads_gives_the_same_to_the_last_bit(
    make_graph: Any, partitioned: Any, on_threads: Any, shared: bool, monkeypatch: Any
) -> None:
    """Also where rows of several ranks are added to one: always in the order of ranks."""
    monkeypatch.setattr(halo_rows, "_LEAST", 8)  # a small graph is cut into many pieces too
    graph: Graph = make_graph(90, 160, directed=True, features="dense", labels=3)
    partition = partitioned(graph, 3)

    def rank(comm: Any) -> list[Any]:
        found = []
        with open_local(comm, graph.path, partition, weighted=False) as local:
            for threads in (1, 2, 5):
                with ThreadPool(threads) as pool:
                    halo = Halo(comm, local, shared=shared, pool=pool)
                    rng = np.random.default_rng(comm.rank)
                    x = rng.normal(size=(local.columns, 70)).astype(np.float32)
                    halo.start(x)
                    halo.wait()
                    halo.start_backward(x)
                    halo.wait_backward(x)
                    found.append(x.tobytes())
        return found

    for one, *others in on_threads(3, rank):
        assert others == [one, one]
