"""The cluster of a flow: started once, handed to every stage, closed whatever happens."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.pipelines.flow import graph, run_flow
from penstock.pipelines.flow.stage import StageProcess

FLOW = """
cluster: {cluster: local, workers: 1, no_tls: true}
variables: {a: 1}
stages:
  a: {python: "mine:make", a: "{{a}}"}
  b: {python: "mine:make", input: a}
  c: {python: "mine:make"}
"""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What clusters and stages did, none of which has a process."""
    told: list[str] = []

    @contextmanager
    def connect(spec: Any, **_: Any) -> Iterator[Any]:
        told.append("started")
        try:
            yield SimpleNamespace(scheduler=SimpleNamespace(address="tcp://here:1"))
        finally:
            told.append("closed")

    def wait(self: StageProcess, timeout: float | None) -> dict[str, Any]:
        told.append(f"{self.stage.name} at {self.order['cluster']['cluster']}")
        self.flow.output(self.stage.name).mkdir(parents=True, exist_ok=True)
        return {}

    monkeypatch.setattr(importlib.import_module("penstock.cluster.connect"), "connect", connect)
    monkeypatch.setattr(StageProcess, "start", lambda self: None)
    monkeypatch.setattr(StageProcess, "identity", lambda self: {})
    monkeypatch.setattr(StageProcess, "wait", wait)
    return told


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path / "flow.yaml"


def test_one_cluster_for_all_stages_and_none_where_nothing_runs(
    flow: Path, events: list[str]
) -> None:
    assert run_flow(flow).state == "passed"
    assert (events[0], events[-1]) == ("started", "closed")
    assert sorted(events[1:-1]) == [f"{name} at tcp://here:1" for name in "abc"]
    events.clear()
    assert run_flow(flow).state == "passed"
    assert events == []
    run_flow(flow, variables={"a": "2"})
    assert events == ["started", "a at tcp://here:1", "b at tcp://here:1", "closed"]


@pytest.mark.parametrize(
    "error", [PenstockError("no luck"), KeyboardInterrupt(), RuntimeError("a bug")]
)
def test_it_is_closed_whatever_happens(
    flow: Path, events: list[str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    if isinstance(error, PenstockError):  # of a stage: it is noted, and the flow ends in order
        monkeypatch.setattr(StageProcess, "wait", fail)
        assert run_flow(flow).state == "failed"
        assert run_flow(flow).stages["a"]["why"] == "its last run failed or was cut off"
    else:
        monkeypatch.setattr(graph, "run_graph", fail)
        with pytest.raises(type(error)):
            run_flow(flow)
    assert (events[0], events[-1]) == ("started", "closed")
