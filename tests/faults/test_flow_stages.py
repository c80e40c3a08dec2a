"""What a stage can do to its process, and what can be killed around it: a flow's other stages, and
its next run, are as if nothing had happened."""

import json
import os
import signal
import time

import psutil
import pyarrow.parquet as pq
import pytest
from processes import ended, launch, until

from penstock.pipelines.cli import run
from penstock.pipelines.flow import run_flow

MODULE = """
import ctypes, os, resource, signal, time
from pathlib import Path

def make(*given, does="nothing", seconds=6):
    out = given[-1]
    out.mkdir(exist_ok=True)
    (out / "begun").write_text(str(os.getpid()))
    if does == "holds the interpreter":
        ctypes.PyDLL(None).sleep(seconds)
    if does == "crashes":
        ctypes.string_at(0)
    if does == "takes too much memory":
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        bytearray(4 << 30)
    if does == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""
BESIDE = """
stages:
  a: {python: "mine:make", does: "%s"}
  beside: {python: "mine:make"}
  after: {python: "mine:make", input: beside}
"""
WALKS = """
cluster: %s
stages:
  graph: {job: generate sbm, nodes: 10000}
  walks: {job: walk, input: graph, walks: 10, length: 60%s}
"""


START = ["cluster", "start", "--name", "night", "--cluster", "local", "--workers", "2", "-q"]


def flow(home, text, name="flow"):
    home.mkdir(exist_ok=True)
    (home / "mine.py").write_text(MODULE)
    (home / f"{name}.yaml").write_text(text)
    return home / f"{name}.yaml"


def states(report):
    return {name: one["state"] for name, one in report.stages.items()}


@pytest.mark.parametrize(
    ("does", "says"),
    [
        pytest.param("crashes", "SIGSEGV"),
        pytest.param("is killed", "SIGKILL", marks=pytest.mark.slow),
        pytest.param("takes too much memory", "memory", marks=pytest.mark.slow),
    ],
)
def test_a_stage_that_ends_its_process_fails_alone(tmp_path, does, says):
    report = run_flow(flow(tmp_path, BESIDE % does))
    assert states(report) == {"a": "failed", "beside": "done", "after": "done"}
    assert says.lower() in json.dumps(report.stages["a"]["error"]).lower()
    again = run_flow(flow(tmp_path, BESIDE % "nothing"))
    assert states(again) == {"a": "done", "beside": "skipped", "after": "skipped"}


@pytest.mark.slow
def test_a_stage_that_holds_the_interpreter_is_waited_for_or_ended_in_time(tmp_path):
    report = run_flow(flow(tmp_path, BESIDE % "holds the interpreter"))
    assert set(states(report).values()) == {"done"}
    text = BESIDE.replace('"}', '", seconds: 1000, timeout: 3}', 1) % "holds the interpreter"
    began = time.monotonic()
    late = run_flow(flow(tmp_path, text), force=True)
    assert states(late) == {"a": "failed", "beside": "done", "after": "done"}
    assert time.monotonic() - began < 120
    held = int((tmp_path / "flow/a/begun").read_text())
    assert ended(held)


def start(path):
    """Run a flow; return its process once walks are written, and their records, which are later."""
    process, scratch = launch_flow(path), path.parent / "flow/.walks.partial/scratch"
    until(lambda: any(scratch.glob("part-*.json")), process, 300)
    return process


def launch_flow(path):
    return launch("run", path, "--json", "-q", cwd=path.parent)


def walks(home):
    return {one.name: pq.read_table(one) for one in (home / "flow/walks").glob("*.parquet")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    home = tmp_path_factory.mktemp("undisturbed")
    assert run_flow(flow(home, WALKS % ("threads", ""))).state == "passed"
    return walks(home)


@pytest.mark.slow
@pytest.mark.parametrize("retries", [0, 1])
def test_a_driver_that_is_killed_fails_its_stage_alone_which_resumes(
    tmp_path, undisturbed, retries
):
    text = WALKS % ("threads", f", retries: {retries}")
    path = flow(tmp_path / "home", text)
    process = start(path)
    (begun,) = path.parent.glob("runs/*/logs/.walks-0")
    driver = psutil.Process(int(begun.read_text()))
    assert driver.ppid() == process.pid
    driver.kill()
    out, error = process.communicate(timeout=600)
    report = json.loads(out)
    if not retries:
        assert process.returncode == 1
        assert {name: one["state"] for name, one in report["stages"].items()} == {
            "graph": "done",
            "walks": "failed",
        }
        report = run_flow(path).to_dict()
    assert report["state"] == "passed", error
    assert report["stages"]["walks"]["report"]["resumed_files"] > 0
    assert walks(path.parent) == undisturbed


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    assert run(START) == 0
    yield "night"
    run(["cluster", "stop", "--name", "night", "-q"])


@pytest.mark.slow
def test_a_cluster_that_is_killed_fails_the_stage_and_the_next_run_resumes(
    tmp_path, undisturbed, daemon, capsys
):
    """Its daemon holds the scheduler: both are killed."""
    capsys.readouterr()
    assert run(["cluster", "status", "--json"]) == 0
    (known,) = json.loads(capsys.readouterr().out)["clusters"]
    path = flow(tmp_path / "home", WALKS % (daemon, ""))
    process = start(path)
    os.kill(known["pid"], signal.SIGKILL)
    process.communicate(timeout=600)
    assert process.returncode == 1
    assert run(START) == 0
    again = run_flow(path)
    assert (again.state, again.stages["graph"]["state"]) == ("passed", "skipped")
    assert walks(path.parent) == undisturbed


@pytest.mark.slow
def test_two_flows_of_one_folder_run_at_once_on_one_cluster(tmp_path, daemon):
    home = tmp_path / "home"
    names = ("one", "other")
    paths = [flow(home, WALKS % (daemon, ""), name) for name in names]
    runs = [launch_flow(path) for path in paths]
    for process in runs:
        out, error = process.communicate(timeout=600)
        assert (process.returncode, json.loads(out)["state"]) == (0, "passed"), error
    files = [sorted((home / name / "walks").glob("*.parquet")) for name in names]
    assert files[0]
    for one, other in zip(*files, strict=True):
        assert pq.read_table(one).equals(pq.read_table(other))


@pytest.mark.parametrize(
    "stage",
    [
        "python: 'mine:absent'",
        "python: 'absent:make'",
        "python: 'mine:make', inputs: graph",
        "python: 'mine:make', does: x, other: y",
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_anything_runs(tmp_path, stage):
    text = "stages: {first: {python: 'mine:make'}, a: {STAGE, after: first}}"
    path = flow(tmp_path, text.replace("STAGE", stage))
    assert run(["run", str(path), "--plan"]) == 2
    assert run(["run", str(path), "-q", "--no-report"]) == 2
    assert not (tmp_path / "flow/first").exists()
