"""The Dask graph of a flow: a node a stage, resources, and the dashboard that shows it."""

from __future__ import annotations

import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster import dashboard
from penstock.pipelines.flow import graph
from penstock.pipelines.flow import run as running
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.run import Choice, FlowRun

FLOW = """
parallel: 6
stages:
  two: {python: "mine:make", gpus: 2}
  one: {python: "mine:make", gpus: 1}
  ranks: {python: "mine:make", parts: 2}
  more: {python: "mine:make", parts: 2}
  last: {python: "mine:make", input: [one, ranks], after: [two]}
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The scheduler of the stages, and where its dashboard is, of a machine with two GPUs."""
    found: list[Any] = []
    serve = dashboard.serve_dashboard

    def noted(cluster: Any, spec: Any) -> str | None:
        found[:] = [cluster.scheduler, serve(cluster, spec)]
        return str(found[1])

    monkeypatch.setattr(dashboard, "serve_dashboard", noted)
    monkeypatch.setattr(running, "gpus_of", lambda flow: 2)
    return found


def run_with(folder: Path, stage: Callable[[str], None]) -> None:
    """Run the graph of the flow, whose nodes call ``stage``."""
    (folder / "flow.yaml").write_text(FLOW)
    run = FlowRun(read_flow(folder / "flow.yaml"), Choice(), quiet=True)
    run.stage = lambda name: [stage(name), "done"][1]  # type: ignore[method-assign,assignment]
    graph.run_graph(run, 6, quiet=True)


def test_stages_that_want_the_same_wait_for_each_other(tmp_path: Path, served: list[Any]) -> None:
    lock, at_once, ended = threading.Lock(), set[str](), list[str]()
    together: set[frozenset[str]] = set()

    def stage(name: str) -> None:
        with lock:
            at_once.add(name)
            together.update(frozenset({name, other}) for other in at_once)
        time.sleep(0.1)
        with lock:
            at_once.discard(name)
            ended.append(name)

    run_with(tmp_path, stage)
    assert sorted(ended) == ["last", "more", "one", "ranks", "two"]
    for pair in (("one", "two"), ("ranks", "more"), ("last", "one"), ("last", "two")):
        assert frozenset(pair) not in together
    assert any(len(pair) == 2 for pair in together)  # the others ran side by side


def test_a_node_a_stage_is_on_the_dashboard(tmp_path: Path, served: list[Any]) -> None:
    nodes: dict[str, tuple[set[str], dict[str, float]]] = {}
    pages: list[str] = []

    def stage(name: str) -> None:
        if name != "last":
            return
        scheduler, address = served
        keys = {key.rpartition("-")[0]: task for key, task in scheduler.tasks.items()}
        for short, task in keys.items():
            needs = {one.key.rpartition("-")[0] for one in task.dependencies}
            nodes[short] = (needs, dict(task.resource_restrictions or {}))
        link = address.removesuffix("status")
        key = urllib.parse.quote(keys["last"].key, safe="")
        with urllib.request.urlopen(f"{link}info/task/{key}.html", timeout=30) as page:
            pages.append(page.read().decode())

    run_with(tmp_path, stage)
    assert nodes == {
        "two": (set(), {"gpu": 2}),
        "one": (set(), {"gpu": 1}),
        "ranks": (set(), {"gang": 1}),
        "more": (set(), {"gang": 1}),
        "last": ({"one", "ranks", "two"}, {}),
    }
    assert "processing" in pages[0]
    assert all(name in pages[0] for name in ("one-", "ranks-", "two-"))
