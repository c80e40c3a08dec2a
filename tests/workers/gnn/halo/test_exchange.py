"""Ghosts' rows are those of their owners, and gradients come home: as on the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo.exchange import Halo

NODES, WIDTH = 90, 5


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(NODES, 160, directed=True, weights=True, features="dense", labels=3)


@pytest.fixture(params=[True, False], ids=["shared", "messages"])
def shared(request: pytest.FixtureRequest) -> bool:
    """Whether ranks write into each other's memory."""
    return bool(request.param)


def exchange_back(halo: Halo, x: Any, tests: int = 0) -> None:
    halo.start_backward(x)
    for _ in range(tests):
        halo.test()
    halo.wait_backward(x)


def test_sums_do_not_depend_on_who_comes_first(
    partitioned: Any, on_threads: Any, graph: Graph, shared: bool
) -> None:
    """Numbers whose sum depends on the order are added in the order of ranks."""
    partition = partitioned(graph, 4)
    parts = np.array([1.0, 1e8, -1e8, 3e-3], np.float32)

    def rank(comm: Any) -> Any:
        with open_local(comm, graph.path, partition, weighted=False) as local:
            halo = Halo(comm, local, shared=shared)
            dx = np.full((local.columns, 2), parts[comm.rank])
            exchange_back(halo, dx)
            for row in range(local.owned):
                expected = parts[comm.rank]
                for peer in range(4):
                    if peer in local.send and row in local.send[peer]:
                        expected = expected + parts[peer]
                np.testing.assert_array_equal(dx[row], expected)

    on_threads(4, rank)
