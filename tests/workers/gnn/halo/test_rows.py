"""Rows are packed and added by all threads of a rank, with the same result as by one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.kernels.cpu import ghost_rows
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.halo import rows as halo_rows
from penstock.workers.gnn.halo.exchange import Halo
from penstock.workers.gnn.thread_pool import ThreadPool

ROWS, WIDTH = 5000, 64


def random_rows(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(ROWS)[: ROWS - 701]).astype(np.intp)
    x = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    return x, rows, rng.normal(size=(len(rows), WIDTH)).astype(np.float32)


@pytest.fixture
def threads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[int]]:
    """Say which threads came to a kernel; nobody goes on before a second one has come."""

    def watch(name: str) -> set[int]:
        kernel, seen, two = getattr(ghost_rows, name), set(), threading.Event()

        def watched(*arrays: Any) -> None:
            seen.add(threading.get_ident())
            if len(seen) > 1:
                two.set()
            assert two.wait(30), "one thread does it all"
            kernel(*arrays)

        monkeypatch.setattr(ghost_rows, name, watched)
        return seen

    return watch


def test_all_threads_pack(threads_of: Any) -> None:
    x, rows, buffer = random_rows(1)
    seen = threads_of("take_rows")
    with ThreadPool(3) as pool:
        halo_rows.take_rows(x, rows, buffer, pool)
    assert len(seen) > 1
    np.testing.assert_array_equal(buffer, x[rows])


def test_all_threads_add(threads_of: Any) -> None:
    x, rows, buffer = random_rows(2)
    expected = x.copy()
    expected[rows] += buffer
    seen = threads_of("add_rows")
    with ThreadPool(3) as pool:
        halo_rows.add_rows(x, rows, buffer, pool)
    assert len(seen) > 1
    np.testing.assert_array_equal(x, expected)


def test_few_rows_are_not_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x, rows, buffer = random_rows(3)
    with ThreadPool(3) as pool:
        monkeypatch.setattr(pool, "over", lambda *args, **how: pytest.fail("it costs more"))
        halo_rows.take_rows(x, rows[:300], buffer[:300], pool)
        halo_rows.copy_rows(x[:300], buffer[:300], pool)
    np.testing.assert_array_equal(buffer[:300], x[:300])


def test_messages_are_not_looked_after_in_the_middle_of_posting_them() -> None:
    x, rows, buffer = random_rows(4)
    with ThreadPool(2, progress=lambda: pytest.fail("they are being posted")) as pool:
        halo_rows.take_rows(x, rows, buffer, pool)
        halo_rows.add_rows(x, rows, buffer, pool)
        halo_rows.copy_rows(x, x.copy(), pool)


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
