"""Ghosts' rows are those of their owners, and gradients come home: as on the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.csr import Array
from penstock.graph import Graph
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo.exchange import Halo

NODES, WIDTH = 90, 5


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(NODES, 160, directed=True, weights=True, features="dense", labels=3)


def values(nodes: Any, width: int, dtype: Any = np.float32) -> Array:
    """Return a matrix for these nodes, all different, small whole numbers."""
    rows = np.asarray(nodes)[:, None] * 7 + np.arange(width) * 3 + 1
    return (rows % 61).astype(dtype)


@pytest.fixture(params=[True, False], ids=["shared", "messages"])
def shared(request: pytest.FixtureRequest) -> bool:
    """Whether ranks write into each other's memory."""
    return bool(request.param)


def exchange(halo: Halo, x: Any, tests: int = 0) -> None:
    halo.start(x)
    for _ in range(tests):
        halo.test()
    halo.wait()


def exchange_back(halo: Halo, x: Any, tests: int = 0) -> None:
    halo.start_backward(x)
    for _ in range(tests):
        halo.test()
    halo.wait_backward(x)


def write_back(halo: Halo, x: Any, receive: Any) -> None:
    """Exchange back where ghosts' rows are written to where they go."""
    targets = [(rows, x[rows].copy(), out) for rows, out in halo.targets_backward(x)]
    assert sorted(rows.start for rows, _, _ in targets) == sorted(r.start for r in receive.values())
    for rows, mine, out in targets:
        x[rows] = -1
        out[...] = mine
    halo.start_backward(x)
    halo.wait_backward(x)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("k", [2, 4])
def test_there_and_back(
    partitioned: Any, on_threads: Any, graph: Graph, k: int, overlap: bool, shared: bool
) -> None:
    partition = partitioned(graph, k)

    def rank(comm: Any) -> Any:
        with open_local(comm, graph.path, partition, weighted=False) as local:
            halo = Halo(comm, local, overlap=overlap, shared=shared)
            owned = slice(local.owned)
            gradients = []
            for tests, width in ((0, WIDTH), (3, 1), (10, WIDTH), (1, 70)):
                halo.overlap = overlap and width > 1  # may change
                x = np.full((local.columns, width), -1, np.float32)
                x[owned] = values(local.ids[owned], width)
                exchange(halo, x, tests)
                np.testing.assert_array_equal(x, values(local.ids, width))
                assert np.shares_memory(halo.ghosts(x), x)
                x[local.owned :] = -1
                halo.start(x, separate=True)
                halo.test()
                halo.wait()
                ghosts = values(local.ids[local.owned :], width)
                np.testing.assert_array_equal(halo.ghosts(x), ghosts)
                assert np.shares_memory(halo.ghosts(x), x) != shared
                dx = values(local.ids + comm.rank, width, np.float64)
                exchange_back(halo, dx, tests)
                gradients.append(dx[owned])
                dx = values(local.ids + comm.rank, width, np.float64)
                write_back(halo, dx, local.receive)
                np.testing.assert_array_equal(dx[owned], gradients[-1])
            return local, gradients

    found = on_threads(k, rank)
    for place, width in enumerate((WIDTH, 1, WIDTH, 70)):
        expected = np.zeros((NODES, width))
        for local, _ in found:
            np.add.at(expected, local.ids, values(local.ids + local.rank, width, np.float64))
        for local, gradients in found:
            np.testing.assert_array_equal(gradients[place], expected[local.ids[: local.owned]])


def test_bytes_are_counted(partitioned: Any, on_threads: Any, graph: Graph, shared: bool) -> None:
    partition = partitioned(graph, 3)

    def rank(comm: Any) -> None:
        with open_local(comm, graph.path, partition, weighted=False) as local:
            halo = Halo(comm, local, shared=shared)
            x = np.zeros((local.columns, WIDTH), np.float32)
            exchange(halo, x)
            sends = {peer: len(rows) * WIDTH * 4 for peer, rows in local.send.items()}
            receives = {p: (r.stop - r.start) * WIDTH * 4 for p, r in local.receive.items()}
            rows, gradients = sum(sends.values()), sum(receives.values())
            assert halo.sent_bytes == rows
            exchange_back(halo, x)
            assert halo.sent_bytes == rows + gradients

    on_threads(3, rank)


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
