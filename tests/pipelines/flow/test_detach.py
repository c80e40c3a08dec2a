"""A detached run outlives its shell, is seen in the list of runs, and ends with SIGTERM."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from processes import until

from penstock.pipelines.cli import run
from penstock.pipelines.flow.records import all_runs
from penstock.workers.processes import process_start

MODULE = """
import time
def work(out, seconds=0):
    print("begun", flush=True)
    out.mkdir(exist_ok=True)
    time.sleep(seconds)
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(
        "variables: {seconds: 100}\nstages: {a: {python: 'mine:work', seconds: '{{seconds}}'}}"
    )
    return tmp_path


def detach(home, *more):
    """Start a run from a shell, and kill the shell."""
    words = ["run", "flow.yaml", "--detach", "--json", "--no-report", *more]
    shell = subprocess.Popen(
        ["sh", "-c", '"$@"; sleep 100', "sh", sys.executable, "-P", "-m", "penstock", *words],
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    text = ""
    while not text.endswith("}\n"):
        text += shell.stdout.readline()
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait(30)
    shell.stdout.close()
    return json.loads(text)


def wait_for_stage(home):
    until(lambda: [*home.glob("runs/*/logs/a.log")] and (home / "flow/a").exists())


def states(home):
    return [one.state for one in all_runs(home / "runs")]


@pytest.mark.slow
def test_a_detached_run_outlives_its_shell_and_ends_at_sigterm(home):
    run = detach(home)
    process = psutil.Process(run["process"])
    wait_for_stage(home)
    assert states(home) == ["running"]
    process.terminate()
    psutil.wait_procs([process], 60)
    assert states(home) == ["interrupted"]
    process = psutil.Process(detach(home, "--set", "seconds=1", "--date", "2026-11-20")["process"])
    psutil.wait_procs([process], 60)
    assert states(home) == ["interrupted", "passed"]
    assert all_runs(home / "runs")[-1].date == "2026-11-20"
    assert Path(run["log"]).read_text()


@pytest.mark.slow
def test_a_detached_run_ends_with_the_cluster_that_it_names(home, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(home / "state"))
    name = ["--name", "night", "-q"]
    assert run(["cluster", "start", "--cluster", "local", "--workers", "1", *name]) == 0
    try:
        with (home / "flow.yaml").open("a") as file:
            file.write("\ncluster: night\n")
        process = psutil.Process(detach(home)["process"])
        wait_for_stage(home)
    finally:
        assert run(["cluster", "stop", *name]) == 0
    assert process_start(process.pid) is None  # also of a zombie
    assert states(home) == ["interrupted"]


def test_a_run_that_is_refused_at_once_has_the_code_of_the_run(home):
    words = ["run", str(home / "flow.yaml"), "--detach", "-q"]
    assert run([*words, "--set", "seconds=x"]) == 2
    assert run([*words, "--accept", "q", "--reason", "r"]) == 2
    (home / "flow.yaml").write_text("stages: {a: {python: 'mine:none'}}")
    assert run(words) == 2
    assert not states(home)


def test_a_run_that_is_refused_leaves_its_record(home):
    words = ["run", str(home / "flow.yaml"), "--detach", "-q"]
    (home / "flow/a").mkdir(parents=True)
    (home / "flow/a/mine").touch()  # which this flow has not made
    assert run([*words, "--set", "seconds=0"]) in (0, 1)  # 1 if it has failed already
    until(lambda: states(home) == ["failed"])
