"""``penstock cluster``: started, shown, stopped, and nothing left, whatever goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.cluster.connect import connect
from penstock.cluster.daemon import daemon, registry, status, stop
from penstock.cluster.daemon.registry import Registered, all_registered, find
from penstock.cluster.security import of_folder
from penstock.pipelines.cli import run
from penstock.workers.processes import process_start

# Loaded by every Python that a test starts: where CLUSTER says so, connect() is a cluster that
# starts at once, or fails as a test wants it.
SITE = """
import os, signal, subprocess, sys
from contextlib import contextmanager

if os.environ.get("CLUSTER"):
    import penstock.cluster.connect as connecting
    from penstock.errors import CapacityError

    class Dashboard:
        port = 1

    pages = {"http_application": type("Application", (), {"applications": [1]})}

    class Cluster:
        dashboard_link = "http://localhost:1/status"
        scheduler = type("Scheduler", (), {"services": {"dashboard": Dashboard}, **pages})

    class Client:
        cluster = Cluster
        scheduler = type("Scheduler", (), {"address": os.environ.get("ADDRESS", "tcp://h:1")})

        def nthreads(self):
            return {"a": 1, "b": 1}

        def scheduler_info(self, n_workers):
            return {"id": "Scheduler-1", "address": self.scheduler.address, "workers": {}}

    def wait():
        while True:
            signal.pause()

    @contextmanager
    def connect(spec, *, quiet=True):
        how = os.environ["CLUSTER"]
        worker = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        print("a worker says hello", file=sys.stderr, flush=True)
        try:
            if how == "fails":
                raise CapacityError("no room", expected="2 GB", got="1 GB", remedy="Make room")
            if how == "breaks":
                raise ZeroDivisionError
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hangs":
                wait()
            yield Client()
        finally:
            if how == "stays":
                wait()
            worker.kill()
            worker.wait()

    connecting.connect = connect
"""

# As a shell starts it in the foreground; in the background it would ignore Ctrl-C.
HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from penstock.pipelines.cli import main
main()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(SITE)
    return folder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Path) -> Iterator[Path]:
    """An empty register; what a test leaves running is an error, and ends."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(site))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    yield folder
    left = processes(folder)
    for process in left:
        process.kill()
    assert not left


@pytest.fixture
def fake(state: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda how: monkeypatch.setenv("CLUSTER", how)


def processes(state: Path) -> list[Any]:
    """Every process of this test, this one aside.

    A process that was started a moment ago may have no environment yet: its parent goes on when the
    kernel has closed descriptors for the new program, which is before it has laid out its stack.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("PENSTOCK_STATE") == str(state):
                found.append(process)
        except psutil.Error:  # a zombie has no environment
            continue
    return found


def left(state: Path) -> tuple[list[Any], list[str]]:
    """What is there after a cluster: processes, and files in the register and elsewhere."""
    files = [*os.listdir(state), *os.listdir(state.parent / "temporary")]
    return processes(state), files


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEARS_CTRL_C, "cluster", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


# -- a real cluster -------------------------------------------------------------------------------

KINDS = ["local", pytest.param("mpi", marks=pytest.mark.mpi)]


@pytest.mark.parametrize("kind", KINDS)
def test_started_used_stopped_and_nothing_left(
    kind: str,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from distributed import Client

    monkeypatch.setattr(stop, "STOP_TIMEOUT", 60)  # in order, however busy the machine is

    file = tmp_path / "scheduler.json"
    line = f"cluster start --kind {kind} -n 2 --scheduler-file {file} --json"
    assert run(line.split()) == 0
    told = answer(capsys)
    assert (told["name"], told["kind"], told["workers"]) == ("default", kind, 2)
    assert told["dashboard"].startswith("http://")
    used = of_folder(Path(find("default").tls))
    with (
        connect("default") as client,
        Client(scheduler_file=str(file), security=used) as other,
    ):
        assert other.scheduler.address == told["address"]
        pids = set(client.run(os.getpid).values())
    daemon_of = psutil.Process(told["pid"])
    assert daemon_of.status() != psutil.STATUS_ZOMBIE
    assert os.getsid(told["pid"]) == told["pid"], "no terminal ends it"

    assert run(["cluster", "status", "--name", "default", "--json"]) == 0
    (one,) = answer(capsys)["clusters"]
    assert one["state"] == "running"
    assert {worker["pid"] for worker in one["present"]} == pids
    for worker in one["present"]:
        assert worker["threads"] == 1
        assert worker["memory"] > 10_000_000
        assert worker["tasks"] == 0

    assert run(f"cluster start --kind {kind} -n 2".split()) == 1
    assert "there is a cluster 'default' already" in capsys.readouterr().err
    assert run(["cluster", "stop"]) == 0
    assert capsys.readouterr().out == "cluster default: stopped\n"
    assert left(state) == ([], [])
    assert not file.exists()
    assert run(["cluster", "status"]) == 0
    assert capsys.readouterr().out == "no cluster is started\n"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder for --tls, with one certificate that is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    folder = tmp_path / "certificates"
    folder.mkdir()
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=penstock"
    line = f"openssl {make} -keyout key.pem -out cert.pem"
    subprocess.run(line.split(), cwd=folder, check=True, capture_output=True)
    shutil.copy(folder / "cert.pem", folder / "ca.pem")
    return folder


@pytest.mark.slow
def test_a_daemon_that_is_suspended_or_killed(
    state: Path,
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "cluster start --kind local -n 2 -q --name big --dashboard none --tls"
    assert run([*line.split(), str(certificates)]) == 0
    entry = find("big")
    assert entry is not None
    assert entry.address is not None
    assert entry.address.startswith("tls://")
    assert entry.dashboard is None
    assert run(["cluster", "status", "--name", "big", "--json"]) == 0
    assert len(answer(capsys)["clusters"][0]["present"]) == 2
    os.kill(entry.pid, signal.SIGSTOP)
    monkeypatch.setattr(status, "ANSWER_TIMEOUT", 0.3)
    began = time.monotonic()
    assert run(["cluster", "status"]) == 0
    assert run(["cluster", "status", "--name", "big"]) == 1
    assert time.monotonic() - began < 5
    out, err = capsys.readouterr()
    assert "big      silent  -/2" in out
    assert (
        f"the scheduler of cluster 'big' (process {entry.pid}) does not answer at {entry.address}. "
        "Got no answer within 0.3 s. Try again; if it stays like that, end it with penstock "
        "cluster stop --name big."
    ) in err

    os.kill(entry.pid, signal.SIGKILL)
    until(lambda: find("big").alive() is False)  # type: ignore[union-attr]
    assert run(["cluster", "status"]) == 0
    assert "big      ended  -/2" in capsys.readouterr().out
    assert run(["cluster", "status", "--name", "big"]) == 1
    assert "cluster 'big' runs no more. Expected process" in capsys.readouterr().err
    assert run(["cluster", "stop", "--name", "big"]) == 0
    assert "big: its daemon had died" in capsys.readouterr().out
    assert left(state) == ([], [])


# -- what start says ------------------------------------------------------------------------------


def test_what_start_prints(
    fake: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("works")
    monkeypatch.setattr(daemon, "_SAY_AFTER", 0)
    assert run("cluster start --name big --kind cuda -n 2".split()) == 0
    out, err = capsys.readouterr()
    assert err == "waiting for 2 workers of cluster big (cuda), up to 60 s\n"
    assert out.startswith("cluster big: 2 workers (cuda), ready in ")
    for line in (
        "  address    tcp://h:1",
        "  dashboard  http://localhost:1/status",
        f"  log        {find('big').log}",  # type: ignore[union-attr]
        "  use it     penstock etl ... --cluster big",
        '             Python: penstock.connect("big")',
        "  stop it    penstock cluster stop --name big",
    ):
        assert line in out.splitlines()
    assert run("cluster start -n 2 -q".split()) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["cluster", "stop", "--all"]) == 0
    assert capsys.readouterr().out == "cluster big: stopped\ncluster default: stopped\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--name a/b", "option --name has a bad value. Expected letters, digits"),
        ("--name mpi", "a cluster cannot be named 'mpi'"),
        ("--kind threads", "kind 'threads': threads belong to the process of one job"),
        ("--kind tcp://h:1", "kind 'tcp://h:1': that is not a kind of cluster. Expected one of "),
        ("--kind moon", "Expected one of local, mpi, cuda, slurm"),
        ("--kind none.yaml", "there is no file {here}/none.yaml with cluster options"),
        ("--scheduler-file /no/where/file", "--scheduler-file lies in no folder"),
        ("-n 0", "option --workers has a bad value"),
    ],
)
def test_bad_options_start_nothing(
    line: str, message: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "start", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message.format(here=Path.cwd()) in err
    assert not state.exists()


# -- starts that fail -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_daemons_error_is_the_commands(
    fake: Any, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daemon, "_SAY_AFTER", 60)  # however busy the machine is
    fake("fails")
    assert run(["cluster", "start", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": "CapacityError",
        "what": "no room",
        "expected": "2 GB",
        "got": "1 GB",
        "remedy": "Make room",
    }
    assert err == "penstock: no room. Expected 2 GB, got 1 GB. Make room.\n"
    assert left(state) == ([], [f"default@{os.uname().nodename}"])
    assert os.listdir(next(state.iterdir())) == ["log"]
    assert run(["cluster", "status"]) == 0
    assert capsys.readouterr().out == "no cluster is started\n"

    assert run(["cluster", "start", "-v"]) == 1
    err = capsys.readouterr().err
    assert "The last lines of the cluster's log:\na worker says hello\n" in err
    assert "In the daemon of the cluster:\nTraceback" in err
    assert err.splitlines()[-1] == "penstock: no room. Expected 2 GB, got 1 GB. Make room."

    fake("works")
    assert run(["cluster", "start", "-q"]) == 0
    assert run(["cluster", "stop", "-q"]) == 0
    assert left(state) == ([], [])


@pytest.mark.parametrize(
    ("how", "got", "log"),
    [("dies", "it was killed by signal 9", "hello"), ("breaks", "exit code 1", "ZeroDivision")],
)
def test_a_daemon_that_ends_without_a_word(
    how: str, got: str, log: str, fake: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(how)
    assert run(["cluster", "start", "-v"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == (
        "penstock: the daemon of cluster 'default' ended before every worker had connected. "
        f"Got {got}. -v shows the end of its log."
    )
    assert log in err
    assert all_registered() == []
    assert processes(state) == []


def test_workers_that_never_arrive(
    fake: Any, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("hangs")
    monkeypatch.setattr(daemon, "_LOADING", 1)
    assert run("cluster start -n 3 --start-timeout 0.5".split()) == 1
    assert (
        "cluster 'default' is not ready after 2 s. Expected 3 workers within 0.5 s. Give it longer"
    ) in capsys.readouterr().err
    assert all_registered() == []
    assert processes(state) == []


def starting() -> Registered | None:
    entry = find("default")
    return entry if entry is not None and Path(entry.log or "").stat().st_size else None


def test_ctrl_c_ends_a_start(fake: Any, state: Path) -> None:
    fake("hangs")
    with command("start", "-n", "2") as process:
        until(starting)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("penstock: interrupted.")
    assert left(state)[0] == []
    assert all_registered() == []


def test_a_cluster_that_is_starting(
    fake: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("hangs")
    with command("start", "-n", "2") as process:
        until(starting)
        assert run(["cluster", "status", "--name", "default"]) == 0
        assert capsys.readouterr().out.startswith("cluster default: starting, kind local")
        assert run(["cluster", "start"]) == 1
        assert "already. Got kind local at no address yet" in capsys.readouterr().err
        assert run(["cluster", "stop"]) == 0
        assert capsys.readouterr().out == "cluster default: stopped\n"
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ended before every worker had connected. Got it was asked to stop.\n" in err
    assert left(state) == ([], [])


def test_a_cluster_that_nobody_waits_for_ends(fake: Any, state: Path) -> None:
    fake("works")
    hear, tell = os.pipe()
    os.close(hear)
    folder = registry.draft()
    order = {
        "name": "default",
        "spec": {},
        "folder": str(folder),
        "token": "",
        "scheduler_file": None,
    }
    arguments = [sys.executable, "-P", "-m", daemon.__name__, json.dumps(order), str(tell)]
    try:
        done = subprocess.run(arguments, pass_fds=[tell], timeout=20, stderr=subprocess.DEVNULL)
    finally:
        os.close(tell)
    assert done.returncode == 0
    assert left(state) == ([], [])


@pytest.mark.slow
def test_of_two_starts_one_succeeds(fake: Any, state: Path) -> None:
    fake("works")
    with command("start", "-q") as one, command("start", "-q") as other:
        errors = [process.communicate(timeout=20)[1] for process in (one, other)]
    assert sorted([one.returncode, other.returncode]) == [0, 1]
    assert "there is a cluster 'default' already" in "".join(errors)
    assert run(["cluster", "stop", "-q"]) == 0
    assert left(state) == ([], [])


# -- in the foreground ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_the_foreground_ends_when_told(number: signal.Signals, fake: Any, state: Path) -> None:
    fake("works")
    with command("start", "--foreground", "-n", "2", "--json") as process:
        assert process.stdout is not None
        text = "".join(iter(process.stdout.readline, "}\n")) + "}"
        entry = find("default")
        assert entry is not None
        assert json.loads(text)["pid"] == entry.pid == process.pid
        assert entry.log is None
        process.send_signal(number)
        assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 0
    assert left(state) == ([], [])


def test_the_foreground_can_be_stopped_from_elsewhere(fake: Any, state: Path) -> None:
    fake("works")
    with command("start", "--foreground", "-q") as process:
        until(lambda: (entry := find("default")) and entry.address)
        assert run(["cluster", "stop", "-q"]) == 0
        assert process.wait(20) == 0
    assert left(state) == ([], [])


def test_ctrl_c_before_the_foreground_is_ready(fake: Any, state: Path) -> None:
    fake("hangs")
    with command("start", "--foreground") as process:
        until(lambda: len(processes(state)) == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "penstock: interrupted" in err
    assert left(state) == ([], [])


def test_the_foreground_fails_as_any_command(fake: Any, state: Path) -> None:
    fake("fails")
    with command("start", "--foreground") as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "penstock: no room. Expected 2 GB, got 1 GB. Make room.\n" in err
    assert left(state) == ([], [])


# -- stop -----------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_end_is_killed(
    fake: Any, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("stays")
    monkeypatch.setattr(stop, "STOP_TIMEOUT", 0.3)
    assert run(["cluster", "start", "-q"]) == 0
    until(lambda: len(processes(state)) == 2)
    assert run(["cluster", "stop", "--json"]) == 0
    (stopped,) = answer(capsys)["stopped"]
    assert (stopped["name"], stopped["how"]) == ("default", "killed")
    assert left(state) == ([], [])


def test_a_daemon_that_is_suspended_ends_in_order(
    fake: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("works")
    assert run(["cluster", "start", "-q"]) == 0
    os.kill(all_registered()[0].pid, signal.SIGSTOP)
    assert run(["cluster", "stop"]) == 0
    assert capsys.readouterr().out == "cluster default: stopped\n"
    assert left(state) == ([], [])


def test_orphans_of_a_dead_daemon_end_with_the_next_start(fake: Any, state: Path) -> None:
    fake("works")
    assert run(["cluster", "start", "-q"]) == 0
    entry = all_registered()[0]
    # It would hear of its daemon's end, were it not stopped.
    (orphan,) = psutil.Process(entry.pid).children()
    orphan.suspend()
    os.kill(entry.pid, signal.SIGKILL)
    until(lambda: entry.alive() is False)
    assert run(["cluster", "start", "-q"]) == 0
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    until(lambda: len(processes(state)) == 2)
    assert run(["cluster", "stop", "-q"]) == 0
    assert left(state) == ([], [])


def test_another_process_of_the_same_number_is_left_alone(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        ticks = process_start(stranger.pid)
        assert ticks is not None
        mine = registry.this_process("default", "local")
        entry = replace(mine, pid=stranger.pid, pid_started=ticks - 1)
        registry.claim(entry, registry.draft())
        assert run(["cluster", "stop"]) == 0
        assert "its daemon had died" in capsys.readouterr().out
        assert stranger.poll() is None
        stranger.kill()
    assert os.listdir(state) == []


def test_stopping_what_does_not_run(
    fake: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "stop"]) == 1
    assert capsys.readouterr().err == (
        "penstock: there is no cluster 'default', nor any other that was started. Start it with "
        "penstock cluster start.\n"
    )
    assert run(["cluster", "stop", "--all"]) == 0
    assert capsys.readouterr().out == "no cluster is started\n"
    fake("works")
    assert run(["cluster", "start", "--name", "big", "-q"]) == 0
    for verb in ("stop", "status"):
        assert run(["cluster", verb, "--name", "small"]) == 1
        assert capsys.readouterr().err == (
            "penstock: there is no cluster 'small'. Expected one of big.\n"
        )
    assert run(["cluster", "stop", "--all", "--name", "big"]) == 2
    assert run(["cluster", "stop", "--name", "big", "-q"]) == 0
    assert left(state) == ([], [])


def test_the_log_of_a_cluster_that_ended(
    fake: Any, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake("works")
    assert run(["cluster", "start", "-q"]) == 0
    entry = all_registered()[0]
    os.kill(entry.pid, signal.SIGKILL)
    until(lambda: entry.alive() is False)
    assert run(["cluster", "status", "--name", "default", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["what"] == "cluster 'default' runs no more"
    assert f"the last lines of {entry.log}:\na worker says hello\n" in err
    assert run(["cluster", "stop", "-q"]) == 0


# -- several hosts, one home folder ---------------------------------------------------------------


def test_a_cluster_of_another_host(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "ANSWER_TIMEOUT", 0.5)
    mine = registry.this_process("default", "mpi")
    # Nobody listens there; on its own host the daemon may live all the same.
    there = replace(mine, host="far.host", address="tcp://127.0.0.1:1", workers=4, pid_started=1)
    registry.claim(there, registry.draft())
    assert run(["cluster", "status"]) == 0
    out = capsys.readouterr().out
    assert "default  silent  -/4      mpi   far.host" in out
    assert "tcp://127.0.0.1:1" in out
    assert run(["cluster", "status", "--name", "default"]) == 1
    assert "'default' (on host far.host) does not answer" in capsys.readouterr().err
    assert run(["cluster", "stop"]) == 1
    assert capsys.readouterr().err == (
        "penstock: cluster 'default' was started on host far.host, and ends only there. Run "
        "penstock cluster stop on that host; if it is gone for good, delete "
        f"{state}/default@far.host.\n"
    )
    assert run(["cluster", "stop", "--all"]) == 0
    assert capsys.readouterr().out == "cluster default: left alone, on far.host\n"
    assert all_registered() == [there]


def test_the_names_of_another_host_are_free(fake: Any, state: Path) -> None:
    there = replace(registry.this_process("default", "mpi"), host="far.host", pid_started=1)
    registry.claim(there, registry.draft())
    fake("works")
    assert run(["cluster", "start", "-q"]) == 0
    assert [entry.host for entry in all_registered()] == ["far.host", os.uname().nodename]
    assert run(["cluster", "stop", "-q"]) == 0
    assert all_registered() == [there]


# -- script ---------------------------------------------------------------------------------------


def test_the_script_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    line = "cluster script --nodes 8 --gpus-per-node 4 -- penstock etl a.parquet g --min-degree 2"
    assert run(line.split()) == 0
    out = capsys.readouterr().out
    assert out.startswith("#!/bin/bash\n#SBATCH ")
    assert "#SBATCH --nodes=8\n" in out
    assert "penstock etl a.parquet g --min-degree 2" in out
    assert out.endswith("\n")
    assert run("cluster script --nodes 8".split()) == 0
    assert "penstock cluster start --foreground" in capsys.readouterr().out
    assert run("cluster script --nodes 0".split()) == 2
