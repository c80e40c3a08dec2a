"""Tasks and ranks that compile say so, once a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.kernels import compiled
from penstock.pipelines.job import Workers
from penstock.pipelines.job.tasks import run_tasks
from penstock.workers import compiling


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with connect(ClusterSpec(cluster="threads", workers=1, threads=2)) as found:
        yield found


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every look find a second of compiling more."""
    seconds = count()
    monkeypatch.setattr(compiling, "_seconds", lambda: float(next(seconds)))
    monkeypatch.setattr(compiling, "_EVERY", 0.01)


def work(number: int) -> int:
    time.sleep(0.3)
    return number


def on_rank(comm: Any, number: int) -> int:
    comm.log(epoch=number)
    return work(number)


@pytest.mark.usefixtures("compiles")
def test_tasks_say_it_once(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"sizes": [1, 1, 1], "unit": "rows"}
    assert run_tasks(client, "walk", work, [(0,), (1,), (2,)], quiet=False, **run) == [0, 1, 2]
    assert capsys.readouterr().err.count("walk: compiling kernels (once)\n") == 1
    assert run_tasks(client, "walk", work, [(0,), (1,), (2,)], quiet=True, **run) == [0, 1, 2]
    assert "compiling" not in capsys.readouterr().err


@pytest.mark.usefixtures("compiles")
def test_ranks_say_it_apart_from_metrics(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, dict[str, Any]]] = []

    def hear(rank: int, metrics: dict[str, Any]) -> None:
        heard.append((rank, metrics))

    workers = Workers(client, ClusterSpec(), quiet=False)
    assert workers.ranks(on_rank, (7,), title="train", on_metrics=hear) == [7]
    assert heard == [(0, {"epoch": 7})]
    assert capsys.readouterr().err.count("train: compiling kernels (once)\n") == 1


def test_what_compiles_for_less_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_EVERY", 0.01)
    monkeypatch.setattr(compiling, "_seconds", lambda: compiling.AFTER)
    noticed: list[int] = []
    with compiling.notice_compiling(lambda: noticed.append(1)):
        time.sleep(0.1)
    assert noticed == []


def test_seconds_grow_while_a_kernel_is_compiled() -> None:
    before = compiled.compiled_seconds()
    kernel = compiled.njit(lambda x: x + 1)
    assert kernel(1) == 2
    assert compiled.compiled_seconds() > before
