"""The scheduler: schedules survive a restart, runs do not overlap, what was cut off runs again."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from penstock.pipelines.cli import run
from penstock.pipelines.schedule.serve import Flows, look_again
from penstock.pipelines.schedule.store import runs_of, schedules

FLOW = """
schedule: {cron: "0 4 1 1 *", timezone: UTC, retries: %d, backoff: 0.2}
stages: {a: {python: "mine:work"}}
"""
MODULE = """
import os, time
from pathlib import Path
def work(out):
    out.mkdir(exist_ok=True)
    home = out.parent.parent
    with (home / "runs.txt").open("a") as file:
        file.write("begun\\n")
    if (home / "slow").exists():
        time.sleep(100)
    if (home / "fails").exists():
        raise ValueError("no luck")
    return {"n": 1}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW % 0)
    return tmp_path


def add(home: Path, *more: str, due: bool = True) -> Path:
    """Add the flow, due now."""
    state = home / "state.sqlite"
    assert (
        run(["schedule", "add", str(home / "flow.yaml"), "--state", str(state), "-q", *more]) == 0
    )
    if due:
        with schedules(state) as scheduler:
            scheduler.modify_job("flow", next_run_time=dt.datetime.now().astimezone())
    return state


class Server:
    """``penstock schedule serve`` in a process of its own."""

    def __init__(self, state: Path) -> None:
        words = [sys.executable, "-P", "-m", "penstock", "schedule", "serve", "--state", str(state)]
        self.log = state.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, cwd=state.parent, stderr=log)

    def wait_for(self, what: Any, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    """Start servers, which end with the test however it ends."""
    servers: list[Server] = []

    def start(state: Path) -> Server:
        servers.append(Server(state))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def begun(home: Path) -> int:
    path = home / "runs.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_flow_runs_when_it_is_due_and_once(home, capsys, serve):
    state = add(home)
    server = serve(state)
    server.wait_for(lambda: any(one.ended for one in runs_of(state)))
    sockets = [one for one in psutil.Process(server.process.pid).net_connections() if one.laddr]
    assert [one for one in sockets if one.status == psutil.CONN_LISTEN] == []
    assert server.end() == 143
    assert begun(home) == 1
    assert [(one.code, one.attempt) for one in runs_of(state)] == [(0, 0)]
    assert run(["schedule", "list", "--state", str(state), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["last"]["state"] == "passed"
    assert line["next"].endswith("-01-01T04:00:00+00:00")
    serve(state).end()  # nothing is due, and nothing was cut off
    assert begun(home) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_cut_off_with_the_scheduler_is_made_up_for(home, number, serve):
    (home / "slow").touch()
    state = add(home)
    server = serve(state)
    server.wait_for(lambda: begun(home) == 1)
    server.wait_for(lambda: bool(runs_of(state)))
    server.end(number)
    # After the scheduler is killed, the run continues by itself; the machine would have ended it.
    flow = psutil.Process(runs_of(state)[0].process or 0) if number == signal.SIGKILL else None
    if flow is not None:
        flow.terminate()
        psutil.wait_procs([flow], 60)
    (home / "slow").unlink()
    server = serve(state)
    server.wait_for(lambda: any(one.code == 0 for one in runs_of(state)))
    server.end()
    assert begun(home) == 2


@pytest.mark.slow
def test_a_run_that_fails_is_tried_again_as_often_as_told(home, serve):
    (home / "fails").touch()
    (home / "flow.yaml").write_text(FLOW % 2)
    state = add(home)
    server = serve(state)
    server.wait_for(lambda: sum(one.ended is not None for one in runs_of(state)) == 3)
    server.end()
    assert [one.attempt for one in runs_of(state)] == [2, 1, 0]
    assert {one.code for one in runs_of(state)} == {1}


@pytest.mark.slow
def test_what_is_added_while_the_scheduler_runs_is_seen(home, serve):
    state = add(home, due=False)
    server = serve(state)
    server.wait_for(lambda: "serving 1 schedule " in server.log.read_text())
    with schedules(state) as scheduler:
        scheduler.modify_job("flow", next_run_time=dt.datetime.now().astimezone())
    server.wait_for(lambda: any(one.ended for one in runs_of(state)))
    other = serve(state)
    assert other.process.wait(60) == 1
    server.end()


def test_schedules_are_added_replaced_listed_and_removed(home, capsys):
    state = add(home, due=False)
    assert state.stat().st_mode & 0o077 == 0
    state, flow = str(state), str(home / "flow.yaml")
    assert run(["schedule", "add", flow, "--state", state]) == 1
    assert run(["schedule", "add", flow, "--state", f"{state}2", "--cron", "61 * * * *"]) == 2
    assert not Path(f"{state}2").exists()
    assert run(["schedule", "add", flow, "--state", state, "--replace", "--cron", "5 5 * * *"]) == 0
    assert "5 5 * * *" in capsys.readouterr().out
    assert run(["schedule", "remove", "nothing", "--state", state]) == 2
    assert run(["schedule", "remove", "flow", "--state", state]) == 0
    capsys.readouterr()
    assert run(["schedule", "list", "--state", state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


# Entries of other schedulers


def emitted(home: Path, kind: str, capsys: Any, *more: str) -> str:
    flow = str(home / "flow.yaml")
    assert run(["schedule", flow, "--emit", kind, "--cron", "30 2 * * 1-5", *more]) == 0
    return str(capsys.readouterr().out)


def test_entries_for_others_can_be_read_by_them(home, capsys):
    job = yaml.safe_load(emitted(home, "k8s", capsys, "--timezone", "Europe/Zurich"))
    assert job["kind"] == "CronJob"
    assert job["spec"]["schedule"] == "30 2 * * 1-5"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert "podFailurePolicy" not in job["spec"]["jobTemplate"]["spec"]
    again = yaml.safe_load(emitted(home, "k8s", capsys, "--retries", "2"))
    again = again["spec"]["jobTemplate"]["spec"]
    assert again["backoffLimit"] == 2
    (rule,) = again["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"]["values"] == [2]
    (container,) = again["template"]["spec"]["containers"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    ast.parse(emitted(home, "airflow", capsys, "--retries", "2"))
    unit = emitted(home, "systemd", capsys, "--retries", "2")
    assert "\nRestartPreventExitStatus=2\n" in unit
    assert "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 02:30:00" in unit
    assert "Persistent=true" in unit


def test_a_line_of_cron_runs_the_flow(home, capsys):
    about, zone, line = emitted(home, "cron", capsys).splitlines()
    assert (about[:2], zone) == ("# ", "CRON_TZ=UTC")
    assert line.startswith("30 2 * * 1-5 ")
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    subprocess.run(["sh", "-c", command], check=True, cwd="/", capture_output=True)
    assert begun(home) == 1


def test_words_that_systemd_would_take_apart_are_quoted(home, capsys):
    (home / "flow.yaml").write_text("variables: {v: 1}\n" + FLOW % 0)
    unit = emitted(home, "systemd", capsys, "--set", "v=it's 5 %")
    assert '--set "v=it\'s 5 %%"' in unit
    assert "v=5%%" in emitted(home, "systemd", capsys, "--set", "v=5%")
    job = yaml.safe_load(emitted(home, "k8s", capsys, "--name", "A_" + "b" * 60))
    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", job["metadata"]["name"])
    flow = str(home / "flow.yaml")
    assert run(["schedule", flow, "--emit", "systemd", "--name", "../x y"]) == 2


# What the night brings


@pytest.mark.slow
def test_a_run_that_was_due_while_another_ran_is_made_up_for(home, serve):
    (home / "mine.py").write_text(MODULE.replace("time.sleep(100)", "time.sleep(9)"))
    (home / "slow").touch()
    state = add(home)
    server = serve(state)
    server.wait_for(lambda: begun(home) == 1)
    (home / "slow").unlink()
    (home / "mine.py").write_text(MODULE)
    with schedules(state) as scheduler:
        scheduler.modify_job("flow", next_run_time=dt.datetime.now().astimezone())
    server.wait_for(lambda: sum(one.code == 0 for one in runs_of(state)) == 2)
    server.end()


def test_a_clock_that_was_put_back_delays_nothing(home):
    state = add(home, due=False)
    with schedules(state) as scheduler:
        usual = scheduler.get_job("flow").next_run_time
        scheduler.modify_job("flow", next_run_time=usual.replace(year=usual.year + 4))
        look_again(scheduler)
        assert scheduler.get_job("flow").next_run_time == usual
        overdue = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        scheduler.modify_job("flow", next_run_time=overdue)
        look_again(scheduler)
        assert scheduler.get_job("flow").next_run_time == overdue


@pytest.fixture
def followed(home: Path) -> Callable[[Path], Any]:
    """Do what the scheduler does every few seconds; return the schedule."""

    def follow(state: Path) -> Any:
        with schedules(state) as scheduler:
            Flows(scheduler).follow()
            return scheduler.get_job("flow")

    return follow


def test_a_schedule_follows_its_flows_file(home, capsys, followed):
    state = add(home, due=False)
    before = followed(state)
    assert before.next_run_time.strftime("%d %b %H:%M") == "01 Jan 04:00"
    flow = home / "flow.yaml"
    flow.write_text((FLOW % 3).replace("0 4 1 1 *", "30 5 2 2 *"))
    capsys.readouterr()
    assert run(["schedule", "list", "--state", str(state), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["cron"], line["next"][5:16], line["problem"]) == (
        "30 5 2 2 *",
        "02-02T05:30",
        None,
    )
    after = followed(state)
    assert after.next_run_time.strftime("%d %b %H:%M") == "02 Feb 05:30"
    assert after.args[4] == 3  # retries


@pytest.mark.parametrize("text", ["schedule: {cron: never}\nstages: {}", "stages: [", None])
def test_a_flow_that_says_nothing_of_use_leaves_its_schedule(home, capsys, followed, text):
    state = add(home, due=False)
    before = followed(state)
    flow = home / "flow.yaml"
    flow.unlink() if text is None else flow.write_text(text)
    after = followed(state)
    assert (after.name, after.next_run_time) == (before.name, before.next_run_time)
    capsys.readouterr()
    assert run(["schedule", "list", "--state", str(state), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["problem"]
