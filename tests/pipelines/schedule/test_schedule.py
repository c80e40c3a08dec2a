"""The scheduler: what is due runs as its day, once, whatever was killed; nothing fails unheard."""

import ast
import datetime as dt
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from unittest.mock import Mock

import psutil
import pytest
import yaml
from made import make_outputs, make_record

from penstock.pipelines.cli import run
from penstock.pipelines.flow.records import all_runs
from penstock.pipelines.schedule.entry import Schedules

FLOW = """
schedule: {cron: "0 4 1 1 *", timezone: UTC, retries: %d, backoff: 0.2}
on_success: echo $PENSTOCK_DATE >> passed.txt
on_failure: echo $PENSTOCK_RUN_STATE >> failed.txt
on_retry: echo $PENSTOCK_DATE >> retried.txt
stages: {a: {python: "mine:work"}}
"""
MODULE = """
import time
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
def home(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW % 0)
    return tmp_path


def add(home, *more, days=None):
    """Add the flow; ``days``: as if that many days ago, due every day at midnight."""
    state = home / "state"
    more = more if days is None else ("--cron", "0 0 * * *", *more)
    words = ["schedule", "add", str(home / "flow.yaml"), "--state", str(state), "-q", *more]
    assert run(words) == 0
    if days is not None:
        (path,) = state.glob("*.json")
        body = json.loads(path.read_text())
        since = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
        path.write_text(json.dumps(body | {"added": since.isoformat()}))
    return state


class Server:
    """``penstock schedule serve`` in a process of its own."""

    def __init__(self, state):
        words = [sys.executable, "-P", "-m", "penstock", "schedule", "serve", "--state", str(state)]
        self.log = state.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, cwd=state.parent, stderr=log)

    def wait_for(self, what, seconds=120):
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def serve():
    """Start servers, which end with the test however it ends."""
    servers = []

    def start(state):
        servers.append(Server(state))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


def lines(home, name):
    path = home / f"{name}.txt"
    return path.read_text().splitlines() if path.exists() else []


def begun(home):
    return len(lines(home, "runs"))


def runs(home):
    return all_runs(home / "runs")


def ended(home):
    return [one for one in runs(home) if one.state != "running"]


def days_ago(count):
    return (dt.datetime.now(dt.UTC).date() - dt.timedelta(days=count)).isoformat()


def test_missed_days_run_as_themselves_and_once(home, capsys, serve):
    make_outputs(home / "flow.yaml")
    state = add(home, "--catch-up", "2", days=5)
    server = serve(state)
    server.wait_for(lambda: len(lines(home, "passed")) == 2)
    sockets = [one for one in psutil.Process(server.process.pid).net_connections() if one.laddr]
    assert [one for one in sockets if one.status == psutil.CONN_LISTEN] == []
    assert server.end() == 0
    assert [one.date for one in runs(home)] == [days_ago(1), days_ago(0)]
    assert lines(home, "passed") == [days_ago(1), days_ago(0)]
    capsys.readouterr()
    assert run(["schedule", "list", "--state", str(state), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["last"]["state"], line["last"]["date"]) == ("passed", days_ago(0))
    assert Schedules(state).load("flow").due(dt.datetime.now(dt.UTC)) == []
    metrics = (home / "runs/flow.prom").read_text()
    assert 'penstock_run_passed{flow="flow"} 1' in metrics


def test_a_day_that_passed_while_the_scheduler_was_dead_is_not_due(home):
    make_outputs(home / "flow.yaml")
    state, day = add(home, days=1), days_ago(0)
    entry = Schedules(state).load("flow")
    assert [str(one) for one in entry.due(dt.datetime.now(dt.UTC))] == [day]
    assert run(["run", str(home / "flow.yaml"), "--date", day, "-q", "--no-report"]) == 0
    assert entry.due(dt.datetime.now(dt.UTC)) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_cut_off_with_the_scheduler_runs_again(home, number, serve):
    (home / "slow").touch()
    state = add(home, days=1)
    server = serve(state)
    server.wait_for(lambda: begun(home) == 1)
    server.end(number)
    if number == signal.SIGKILL:  # the run continues by itself; the machine would have ended it
        flow = psutil.Process(runs(home)[0].body["process"])
        flow.terminate()
        psutil.wait_procs([flow], 60)
    (home / "slow").unlink()
    server = serve(state)
    server.wait_for(lambda: any(one.state == "passed" for one in runs(home)))
    server.end()
    assert begun(home) == 2
    assert len({one.date for one in runs(home)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_ended_alone_counts_as_an_attempt(home, number, serve):
    (home / "slow").touch()
    server = serve(add(home, "--retries", "1", days=1))
    for count in (1, 2):
        server.wait_for(lambda count=count: begun(home) == count)
        psutil.Process(runs(home)[-1].body["process"]).send_signal(number)
    server.wait_for(lambda: lines(home, "failed"))
    state = "failed" if number == signal.SIGKILL else "interrupted"
    server.wait_for(lambda: [one.state for one in runs(home)] == ["failed"] * 2)
    assert (len(lines(home, "retried")), lines(home, "failed")) == (1, [state])
    time.sleep(5)
    assert server.end() == 0
    assert begun(home) == 2


@pytest.mark.slow
def test_a_run_that_fails_is_tried_again_and_reported_once(home, serve):
    """Also if the scheduler is stopped before the retry."""
    (home / "fails").touch()
    (home / "flow.yaml").write_text(FLOW % 2)
    state = add(home, "--backoff", "3", days=1)
    server = serve(state)
    server.wait_for(lambda: lines(home, "retried"))
    assert server.end() == 0
    server = serve(state)
    server.wait_for(lambda: len(ended(home)) == 3)
    server.wait_for(lambda: lines(home, "failed"))
    server.end()
    assert [one.body["attempt"] for one in runs(home)] == ["1/3", "2/3", "3/3"]
    assert (len(lines(home, "retried")), lines(home, "failed")) == (2, ["failed"])


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("stages: {a: {python: nothing}}", ()),
        ("variables: {a: '{{env.NO_X}}'}", ()),
        (FLOW % 0, ("--set", "region")),
        (FLOW % 0, ("--forse",)),
        (FLOW % 0, ("--accept", "a")),
        (None, ()),
    ],
)
def test_a_run_that_cannot_start_leaves_a_record_and_is_reported(home, text, more):
    """The hook of the file is called, or that of the last run if the file cannot be read."""
    flow = home / "flow.yaml"
    words = ["run", str(flow), "--scheduled", "zurich", "-q", "--no-report"]
    body = {"date": "2026-11-01", "began": "2026-11-01T04:00:00+00:00", "stages": {}}
    body |= {"flow": "flow", "series": "flow", "file": str(flow)}
    record = make_record(home / "runs/flow-20261101-040000", **body)
    (record / "flow.yaml").write_text(flow.read_text())
    flow.unlink() if text is None else flow.write_text(text)
    for count in (1, 2):
        code = run([*words, "--date", "2026-11-28", "--attempt", "3/3", *more])
        assert code == (1 if text is None else 2)
        assert [one.state for one in runs(home)] == ["passed"] + ["failed"] * count
        assert lines(home, "failed") == ["failed"] * count
        record = runs(home)[-1]
        assert record.body["error"]["what"]
        assert (record.body["flow"], record.date) == ("flow", "2026-11-28")


def test_a_run_that_has_not_passed_in_time_is_late(home):
    now = dt.datetime.now(dt.UTC)
    make_outputs(home / "flow.yaml")
    state = add(home, "--late-after", "00:01", "--timezone", "UTC", days=1)
    entry = Schedules(state).load("flow")
    noon = now.replace(hour=12)
    assert entry.late(noon) == noon.date()
    assert entry.late(now.replace(hour=0, minute=0, second=30)) is None
    assert run(["run", str(home / "flow.yaml"), "--date", str(noon.date()), "-q"]) == 0
    assert entry.late(noon) is None


@pytest.mark.slow
def test_a_late_run_is_reported_once_also_by_the_next_scheduler(home, serve):
    (home / "fails").touch()
    state = add(home, "--late-after", "00:01", days=1)
    for seconds in (0, 8):
        server = serve(state)
        server.wait_for(lambda: sorted(lines(home, "failed")) == ["failed", "late"])
        time.sleep(seconds)
        assert server.end() == 0
    assert sorted(lines(home, "failed")) == ["failed", "late"]


@pytest.mark.slow
def test_a_day_that_passed_in_part_or_with_other_variables_is_due(home):
    text = """
name: n
folder: "out-{{region}}"
variables: {region: ch}
schedule: {cron: "0 0 * * *", timezone: UTC}
stages: {a: {python: "mine:work"}, b: {python: "mine:work"}}
"""
    (home / "flow.yaml").write_text(text)
    now, day = dt.datetime.now(dt.UTC), days_ago(0)
    state = add(home, "--name", "ch", days=1)
    words = ["schedule", "add", str(home / "flow.yaml"), "--state", str(state), "-q"]
    assert run([*words, "--name", "de", "--set", "region=de"]) == 0
    ch, de = (Schedules(state).load(name) for name in ("ch", "de"))
    de = replace(de, added=ch.added)
    words = ["run", str(home / "flow.yaml"), "--date", day, "-q", "--no-report"]
    assert run([*words, "--only", "a"]) == 0
    assert [str(one) for one in ch.due(now)] == [day]
    assert run([*words, "--set", "region=de"]) == 0
    assert [str(one) for one in ch.due(now)] == [day]
    assert de.due(now) == []


@pytest.mark.slow
def test_what_is_added_and_changed_while_the_scheduler_runs_is_seen(home, serve):
    (home / "state").mkdir(mode=0o700)
    server = serve(home / "state")
    server.wait_for(server.log.read_text)  # it serves
    add(home, days=1)
    server.wait_for(lambda: ended(home))
    (home / "flow.yaml").write_text((FLOW % 0).replace("UTC", "Asia/Tokyo"))
    server.wait_for(lambda: "Asia/Tokyo" in server.log.read_text())
    assert serve(home / "state").process.wait(60) == 1
    server.end()


def test_schedules_are_added_replaced_listed_and_removed(home, capsys):
    state = add(home)
    assert state.stat().st_mode & 0o077 == 0
    where, flow = ["--state", str(state)], str(home / "flow.yaml")
    assert run(["schedule", "add", flow, *where]) == 1
    assert run(["schedule", "add", flow, *where, "--replace", "--cron", "61 * * * *"]) == 2
    assert run(["schedule", "add", flow, *where, "--replace", "--cron", "5 5 * * *"]) == 0
    assert "5 5 * * *" in capsys.readouterr().out
    assert run(["schedule", "remove", "nothing", *where]) == 2
    (home / "flow.yaml").write_text("stages: [")
    assert run(["schedule", "list", *where, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["problem"]
    assert run(["schedule", "remove", "flow", *where, "-q"]) == 0
    assert run(["schedule", "list", *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    state.chmod(0o777)  # its content is executed
    assert run(["schedule", "list", *where]) == 1


# Entries of other schedulers


def emitted(home, kind, capsys, *more):
    flow = str(home / "flow.yaml")
    cron = () if "--cron" in more else ("--cron", "30 4 * * 1-5")
    assert run(["schedule", flow, "--emit", kind, *cron, *more]) == 0
    return str(capsys.readouterr().out)


def test_entries_for_others_can_be_read_by_them(home, capsys):
    job = yaml.safe_load(emitted(home, "k8s", capsys, "--timezone", "Europe/Zurich"))
    assert job["kind"] == "CronJob"
    assert job["spec"]["schedule"] == "30 4 * * 1,2,3,4,5"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    week = yaml.safe_load(emitted(home, "k8s", capsys, "--cron", "0 4 * * sun-mon,7"))
    assert week["spec"]["schedule"] == "0 4 * * 0,1"
    unit = emitted(home, "systemd", capsys, "--retries", "2")
    assert "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 04:30:00" in unit
    assert "Persistent=true" in unit


def test_a_line_of_cron_runs_the_flow(home, capsys):
    about, zone, line = emitted(home, "cron", capsys).splitlines()
    assert (about[:2], zone) == ("# ", "CRON_TZ=UTC")
    assert line.startswith("30 4 * * 1-5 ")
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    make_outputs(home / "flow.yaml")
    subprocess.run(["sh", "-c", command], check=True, cwd="/", capture_output=True)
    assert [one.state for one in runs(home)] == ["passed"]


def test_a_dag_of_airflow_runs_the_day_that_was_due(home, capsys, monkeypatch):
    text = emitted(home, "airflow", capsys, "--retries", "2", "--timezone", "Europe/Zurich")
    (function,) = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef))
    calls = []
    names = {"subprocess": subprocess}
    monkeypatch.setattr(subprocess, "call", lambda words, cwd: calls.append(words) or 0)
    exec(compile(ast.Module([function], []), "dag", "exec"), names)
    due = Mock()
    due.in_timezone.return_value.to_date_string.return_value = "2026-11-28"
    names["run"](data_interval_end=due, ti=Mock(try_number=2))
    due.in_timezone.assert_called_once_with("Europe/Zurich")
    assert calls[0][-4:] == ["--date", "2026-11-28", "--attempt", "2/3"]


@pytest.mark.slow
def test_a_line_of_cron_tries_again_as_the_same_day(home, capsys):
    (home / "fails").touch()
    line = emitted(home, "cron", capsys, "--retries", "1", "--backoff", "0.1").splitlines()[-1]
    command = line.split(" ", 5)[5].replace(r"\%", "%")
    assert subprocess.run(["sh", "-c", command], check=False, cwd="/").returncode == 1
    assert [one.body["attempt"] for one in runs(home)] == ["1/2", "2/2"]
    assert (len(lines(home, "retried")), lines(home, "failed")) == (1, ["failed"])


def test_words_that_systemd_would_take_apart_are_quoted(home, capsys):
    (home / "flow.yaml").write_text("variables: {v: 1}\n" + FLOW % 0)
    unit = emitted(home, "systemd", capsys, "--set", "v=it's 5 % of $x")
    (line,) = re.findall("^ExecStart=/bin/sh -c (.*)$", unit, re.MULTILINE)
    (script,) = shlex.split(line.replace("%%", "%").replace("$$", "$"))
    assert "v=it's 5 % of $x" in shlex.split(script)
    job = yaml.safe_load(emitted(home, "k8s", capsys, "--name", "A_" + "b" * 60))
    assert re.fullmatch("[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?", job["metadata"]["name"])
    flow = str(home / "flow.yaml")
    assert run(["schedule", flow, "--emit", "systemd", "--name", "../x y"]) == 2
