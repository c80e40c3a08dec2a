"""What a run would do and take, and what makes an output one of earlier days."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.pipelines.cli import run
from penstock.pipelines.flow import planning, run_flow, state
from penstock.pipelines.flow.document import Flow, StageSpec, read_flow
from penstock.pipelines.flow.run import Choice
from penstock.pipelines.flow.state import FlowState

JOBS = """
stages:
  graph: {job: generate sbm, nodes: %d}
  walks: {job: walk, input: graph, length: 5}
"""


def write(home: Path, text: str) -> Path:
    (home / "flow.yaml").write_text(text)
    return home / "flow.yaml"


def planned(path: Path) -> dict[str, Any]:
    plan = planning.plan_flow(read_flow(path), Choice())
    return {one.name: one for one in plan.stages} | {"text": plan.text()}


class Asked:
    """A stage that tells a plan, and no process."""

    refuse = False

    def __init__(self, flow: Flow, stage: StageSpec, *_: Any, plan: bool) -> None:
        assert plan
        self.name = stage.name

    def start(self) -> None: ...

    def wait(self, timeout: float) -> dict[str, Any]:
        if self.refuse:
            raise PenstockError("it is damaged")
        disk = 3_000_000 if self.name == "graph" else 0
        return {"memory_bytes": 2_000_000, "disk_bytes": disk, "seconds": 4.04}


def test_a_stage_is_planned_by_what_its_input_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first night that is not known; before every other one it is yesterday's."""
    monkeypatch.setattr(planning, "StageProcess", Asked)
    path = write(tmp_path, JOBS % 400)
    first = planned(path)
    assert first["graph"].disk_bytes == 3_000_000
    assert (first["walks"].memory_bytes, first["walks"].unknown) == (None, "graph")
    assert "memory and disk are known once graph has run" in first["text"]

    flow = read_flow(path)
    (flow.folder / "graph").mkdir(parents=True)
    known = FlowState(flow)
    graph = flow.stages["graph"]
    made = known.made_of(graph, {})
    known.begin("graph", made, {})
    known.end(graph, made, {}, 12.3)
    ready = planned(path)["walks"]
    assert (ready.runs, ready.memory_bytes, ready.assumed) == (True, 2_000_000, None)
    again = planned(write(tmp_path, JOBS % 500))
    assert (again["graph"].why, again["graph"].last_seconds) == ("option nodes: 400 -> 500", 12.3)
    assert (again["walks"].memory_bytes, again["walks"].assumed) == (2_000_000, "graph")
    monkeypatch.setattr(Asked, "refuse", True)  # what is there now will be replaced
    refused = planned(path)
    assert (refused["walks"].problem, refused["walks"].unknown) == (None, "graph")
    assert "damaged" in refused["graph"].problem


def test_outputs_of_another_version_or_format_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("def make(out): out.mkdir(exist_ok=True)")
    path = write(tmp_path, 'stages: {a: {python: "mine:make"}}')
    assert run_flow(path).stages["a"]["state"] == "done"
    assert run_flow(path).stages["a"]["state"] == "skipped"
    for name, value in (("FORMAT", state.FORMAT + 1), ("__version__", "99.1")):
        monkeypatch.setattr(state, name, value)
        assert run(["run", str(path), "--plan", "--json"]) == 0
        (stage,) = json.loads(capsys.readouterr().out)["stages"]
        assert (stage["runs"], "made by penstock" in stage["why"]) == (True, True)
        assert run_flow(path).stages["a"]["state"] == "done"
        assert run_flow(path).stages["a"]["state"] == "skipped"
