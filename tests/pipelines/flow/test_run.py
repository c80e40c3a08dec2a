"""Flows that run: what is skipped, what depends on what, gates, publishing, kills and resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.cluster.local import start_resource_tracker
from penstock.errors import CapacityError, OutputExists, UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.records import all_runs

MODULE = """
import json, os, time
def make(*given, value=1, fail=False, seconds=0, die=False):
    *inputs, out = given
    out.mkdir(parents=True, exist_ok=True)
    (out / "begun").write_text(str(os.getpid()))
    time.sleep(seconds)
    if die: os.kill(os.getpid(), 9)
    if fail: raise ValueError("no luck")
    total = value + sum(json.loads((i / "v.json").read_text()) for i in inputs)
    (out / "v.json").write_text(json.dumps(total))
    return {"total": total, "inner": {"value": value}}
"""
FLOW = """
name: small
variables: {value: 1, fail: false, least: 0}
stages:
  a: {python: "mine:make", value: "{{value}}"}
  b: {python: "mine:make", input: a, expect: {total: ">= {{least}}"}, publish: pub/b}
  c: {python: "mine:make", fail: "{{fail}}"}
  d: {python: "mine:make", input: [b, c]}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def flow(home: Path, text: str) -> Path:
    path = home / "flow.yaml"
    path.write_text(text)
    return path


def states(report: Any) -> dict[str, str]:
    return {name: one["state"] for name, one in report.stages.items()}


def test_a_night_from_its_first_run_to_a_broken_gate(home, capsys):
    path = home / "flow.yaml"
    first = run_flow(path)
    assert set(states(first).values()) == {"done"}
    assert first.state == "passed"
    assert json.loads((home / "small/d/v.json").read_text()) == 4
    assert json.loads((home / "pub/b/v.json").read_text()) == 2

    again = run_flow(path)
    assert set(states(again).values()) == {"skipped"}
    assert again.published == []  # it is there already

    other = run_flow(path, variables={"value": "5"})
    assert states(other) == {"a": "done", "b": "done", "c": "skipped", "d": "done"}
    assert "value" in other.stages["a"]["why"]
    assert json.loads((home / "pub/b/v.json").read_text()) == 6
    assert json.loads((home / "pub/b.previous/v.json").read_text()) == 2

    broken = run_flow(path, variables={"value": "9", "least": "100"})
    assert states(broken) == {"a": "done", "b": "gate failed", "c": "skipped", "d": "not run"}
    assert broken.state == "failed"
    assert json.loads((home / "pub/b/v.json").read_text()) == 6  # nothing was published
    assert run(["run", str(path), "--set", "value=9", "--set", "least=100"]) == 1
    said = capsys.readouterr()
    assert "GATE FAILED" in said.out
    assert "nothing was published" in said.err

    runs = all_runs(home / "runs", "small")
    assert [one.state for one in runs] == ["passed"] * 3 + ["failed"] * 2
    lines = (runs[0].folder / "metrics.jsonl").read_text().splitlines()
    kept = {(one["stage"], one["metric"]): one["value"] for one in map(json.loads, lines)}
    assert kept["a", "total"] == kept["c", "inner.value"] == 1
    assert kept["d", "total"] == 4
    assert (runs[0].folder / "flow.yaml").read_text() == path.read_text()
    assert runs[0].body["versions"]["penstock"]


def test_a_failure_ends_only_what_depends_on_it_and_says_why(home, capsys):
    path = home / "flow.yaml"
    assert run(["run", str(path), "--set", "fail=true"]) == 1
    said = capsys.readouterr()
    assert "no luck" in said.err
    record = all_runs(home / "runs")[-1]
    stages = record.body["stages"]
    assert [stages[name]["state"] for name in "abcd"] == ["done", "done", "failed", "not run"]
    assert not (home / "pub").exists()
    assert "no luck" in (record.folder / "logs/c.log").read_text()
    assert run(["run", str(path), "-q"]) == 0
    mended = all_runs(home / "runs")[-1].body["stages"]
    assert [mended[name]["state"] for name in "abcd"] == ["skipped", "skipped", "done", "done"]


def test_only_some_stages_run(home):
    path = home / "flow.yaml"
    with pytest.raises(UsageError, match="no stage 'z'"):
        run_flow(path, first="z")
    alone = run_flow(path, only=("c",))
    assert alone.stages["c"]["state"] == "done"
    assert alone.stages["a"]["state"] == "failed"  # it would have had to run
    assert "must" in alone.stages["a"]["error"]["what"]
    run_flow(path)
    rest = run_flow(path, first="b", force=True)
    assert states(rest) == {"a": "skipped", "b": "done", "c": "skipped", "d": "done"}


def test_a_changed_module_or_a_changed_file_makes_a_stage_run(home):
    (home / "in").mkdir()
    (home / "in/v.json").write_text("1")
    path = flow(home, 'stages: {a: {python: "mine:make", input: in}}')
    assert states(run_flow(path)) == {"a": "done"}
    os.utime(home / "in/v.json")  # the content is the same
    assert states(run_flow(path)) == {"a": "skipped"}
    (home / "in/v.json").write_text("2")
    changed = run_flow(path)
    assert "input" in changed.stages["a"]["why"]
    (home / "mine.py").write_text(MODULE + "\n# changed")
    assert states(run_flow(path)) == {"a": "done"}
    (home / "flow/a/v.json").unlink()
    assert "removed" in run_flow(path).stages["a"]["why"]


def test_a_stage_that_dies_is_run_again_as_often_as_told(home):
    text = """stages: {a: {python: "mine:flaky", retries: 2}}"""
    (home / "mine.py").write_text("""
import os
def flaky(out):
    out.mkdir(exist_ok=True)
    tries = len(list(out.iterdir()))
    (out / str(tries)).write_text("")
    if tries < 1: os.kill(os.getpid(), 9)
    return {"tries": tries}
""")
    report = run_flow(flow(home, text))
    assert report.stages["a"]["metrics"] == {"tries": 1.0}


def test_a_stage_that_takes_too_long_is_stopped(home):
    text = 'stages: {a: {python: "mine:make", seconds: 60, timeout: 2}}'
    began = time.monotonic()
    report = run_flow(flow(home, text))
    assert "stopped after 2 s" in report.stages["a"]["error"]["what"]
    assert time.monotonic() - began < 30


def test_gates_compare_with_the_last_run_that_passed(home):
    text = """
variables: {v: 100}
stages: {a: {python: "mine:make", value: "{{v}}", expect: {total: within 5 % of previous}}}
"""
    path = flow(home, text)
    assert run_flow(path).state == "passed"
    assert run_flow(path, variables={"v": "104"}).state == "passed"
    far = run_flow(path, variables={"v": "110"})
    assert far.state == "failed"
    assert far.stages["a"]["gates"][0]["previous"] == 104
    assert run_flow(path, variables={"v": "109"}).state == "passed"  # of 104, not of 110


def test_more_gpus_than_there_are_are_refused_before_anything_runs(home):
    with pytest.raises(CapacityError, match="wants 64 GPUs"):
        run_flow(flow(home, 'stages: {a: {python: "mine:make", gpus: 64}}'))
    assert not (home / "flow").exists()


def start(home: Path, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-P", "-m", "penstock", "run", str(home / "flow.yaml"), *more]
    return subprocess.Popen(words, cwd=home.parent, stderr=subprocess.DEVNULL)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_flow_that_is_ended_takes_its_stages_along_and_runs_again(home, number):
    text = 'stages: {a: {python: "mine:make", seconds: %d}, b: {python: "mine:make"}}'
    flow(home, text % 100)
    process = start(home)
    begun = home / "flow/a/begun"
    wait_for(begun)
    stage = psutil.Process(int(begun.read_text()))
    process.send_signal(number)
    process.wait(60)
    stage.wait(60)
    assert not stage.is_running()
    assert all_runs(home / "runs")[-1].state == (
        "running" if number == signal.SIGKILL else "interrupted"
    )
    assert run(["runs", "list", "--folder", str(home / "runs")]) == 0
    report = run_flow(flow(home, text % 0))
    assert report.state == "passed"
    assert report.stages["a"]["state"] == "done"


def test_two_runs_never_meet(home):
    flow(home, 'stages: {a: {python: "mine:make", seconds: 100}}')
    process = start(home)
    try:
        wait_for(home / "flow/a/begun")
        with pytest.raises(OutputExists, match="another penstock run"):
            run_flow(home / "flow.yaml")
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_jobs_of_ours_run_as_stages_and_what_was_interrupted_is_resumed(home):
    text = """
name: real
stages:
  graph: {job: generate sbm, nodes: 1000}
  walks: {job: walk, input: graph, length: %d, expect: {walks: "== 1000"}}
"""
    path = flow(home, text % 5)
    assert run_flow(path).state == "passed"
    report = run_flow(flow(home, text % 6))
    assert states(report) == {"graph": "skipped", "walks": "done"}
    assert "option length: 5 -> 6" in report.stages["walks"]["why"]
    bad = flow(home, text % 6 + "  more: {job: walk, input: graph, start: [nobody]}")
    failed = run_flow(bad).stages["more"]["error"]
    assert "nobody" in failed["what"]
    assert failed["error"] == "InputError"


def test_a_plan_writes_nothing_and_says_what_would_run(home, capsys):
    path = home / "flow.yaml"
    assert run(["run", str(path), "--plan", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [one["runs"] for one in body["stages"]] == [True] * 4
    assert not (home / "small").exists()
    assert not (home / "runs").exists()
    run_flow(path)
    assert run(["run", str(path), "--plan", "--json", "--set", "value=3"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["runs"] for one in body["stages"]} == {
        "a": True, "b": True, "c": False, "d": True}  # fmt: skip


@pytest.mark.parametrize("how", ["on_success", "on_failure"])
def test_a_command_is_told_how_a_run_ended(home, how):
    fails = "true" if how == "on_failure" else "false"
    text = f"""
on_success: echo "$PENSTOCK_STATE" > told-on_success
on_failure: echo "$PENSTOCK_STATE" > told-on_failure
stages: {{a: {{python: "mine:make", fail: {fails}}}}}
"""
    here = Path.cwd()
    os.chdir(home)
    try:
        run_flow(flow(home, text))
    finally:
        os.chdir(here)
    assert [one.name for one in home.glob("told-*")] == [f"told-{how}"]


@pytest.mark.slow
def test_a_clusters_stages_share_it(home):
    text = """
cluster: {cluster: local, workers: 1}
stages:
  graph: {job: generate sbm, nodes: 1000}
  walks: {job: walk, input: graph, length: 5}
  more: {job: walk, input: graph, length: 6}
"""
    read_flow(flow(home, text))
    start_resource_tracker()  # it stays: with it among the others, they would all be waited for
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    report = run_flow(home / "flow.yaml")
    assert states(report) == {"graph": "done", "walks": "done", "more": "done"}
    _, alive = psutil.wait_procs(
        [one for one in psutil.Process().children(recursive=True) if one.pid not in before], 10
    )
    assert [" ".join(one.cmdline()) for one in alive] == []


def test_the_record_says_what_runs_and_where_outputs_are(home):
    """So that the page of a run that is killed shows where it was, and finds what there is."""
    (home / "mine.py").write_text(
        "import json, pathlib\n"
        "def make(out):\n"
        "    (record,) = pathlib.Path(__file__).parent.glob('runs/*/run.json')\n"
        "    stage = json.loads(record.read_text())['stages']['a']\n"
        "    return {'runs': stage['state'] == 'running' and len(stage['key'])}\n"
    )
    path = flow(home, "name: f\nfolder: out\nstages: {a: {python: 'mine:make'}}")
    first, second = run_flow(path).stages["a"], run_flow(path).stages["a"]
    assert (first["state"], first["report"]) == ("done", {"runs": 64})
    # What is unchanged keeps its report, so that every record tells all.
    assert (second["state"], second["report"]) == ("skipped", {"runs": 64})
    assert first["key"] == second["key"]
    assert first["out"] == str(home / "out" / "a")
    assert all_runs(home / "runs")[-1].body["folder"] == str(home / "out")
