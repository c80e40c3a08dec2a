"""``penstock cluster``: started, shown, stopped, and nothing left, whatever goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from certificates import make_certificates
from processes import until

from penstock.cluster.connect import connect
from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import all_registered, find
from penstock.cluster.security import of_folder
from penstock.pipelines.cli import run

# As a shell starts it in the foreground; in the background it would ignore Ctrl-C.
HEARS_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from penstock.pipelines.cli import main
main()
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    """An empty register; what a test leaves running is an error, and ends."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PENSTOCK_STATE", str(folder))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    yield folder
    left = processes(folder)
    for process in left:
        process.kill()
    assert not left


def processes(state):
    """Every process of this test, this one aside.

    A process that was started a moment ago may have no environment yet: its parent continues when
    the kernel has closed descriptors for the new program, which is before it has laid out its
    stack.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("PENSTOCK_STATE") == str(state):
                found.append(process)
        except psutil.Error:  # a zombie has no environment
            continue
    return found


def left(state):
    """What remains after a cluster: processes, and files in the register and elsewhere."""
    files = [*os.listdir(state), *os.listdir(state.parent / "temporary")]
    return processes(state), files


def command(*arguments):
    return subprocess.Popen(
        [sys.executable, "-P", "-c", HEARS_CTRL_C, "cluster", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def answer(capsys):
    return json.loads(capsys.readouterr().out)


# -- a real cluster -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["local", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.slow])]
)
def test_started_used_stopped_and_nothing_left(kind, state, tmp_path, capsys):
    from distributed import Client

    file = tmp_path / "scheduler.json"
    line = f"cluster start --cluster {kind} -n 2 --scheduler-file {file} --json"
    assert run(line.split()) == 0
    started = answer(capsys)
    assert (started["name"], started["kind"], started["workers"]) == ("default", kind, 2)
    assert started["dashboard"].startswith("http://")
    used = of_folder(Path(find("default").tls))
    with connect("default") as client, Client(scheduler_file=str(file), security=used) as other:
        assert other.scheduler.address == started["address"]
        pids = set(client.run(os.getpid).values())
    daemon_of = psutil.Process(started["pid"])
    assert daemon_of.status() != psutil.STATUS_ZOMBIE
    assert os.getsid(started["pid"]) == started["pid"], "no terminal ends it"

    assert run(["cluster", "status", "--name", "default", "--json"]) == 0
    (one,) = answer(capsys)["clusters"]
    assert one["state"] == "running"
    assert {worker["pid"] for worker in one["present"]} == pids
    for worker in one["present"]:
        assert worker["threads"] == 1
        assert worker["memory"] > 10_000_000
        assert worker["tasks"] == 0

    assert run(f"cluster start --cluster {kind} -n 2".split()) == 1
    assert run(["cluster", "stop"]) == 0
    assert left(state) == ([], [])
    assert not file.exists()


@pytest.fixture
def certificates(tmp_path):
    return make_certificates(tmp_path / "certificates")


@pytest.mark.slow
def test_a_daemon_that_is_suspended_or_killed(state, certificates, monkeypatch, capsys):
    line = "cluster start --cluster local -n 2 -q --name big --dashboard none --tls"
    assert run([*line.split(), str(certificates)]) == 0
    entry = find("big")
    assert entry.address.startswith("tls://")
    assert entry.dashboard is None
    assert run(["cluster", "status", "--name", "big", "--json"]) == 0
    assert len(answer(capsys)["clusters"][0]["present"]) == 2
    os.kill(entry.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert run(["cluster", "status"]) == 0
    assert run(["cluster", "status", "--name", "big"]) == 1
    assert time.monotonic() - began < 30
    assert entry.address in capsys.readouterr().err

    os.kill(entry.pid, signal.SIGKILL)
    until(lambda: find("big").alive() is False)
    assert run(["cluster", "status"]) == 0
    assert run(["cluster", "status", "--name", "big"]) == 1
    assert run(["cluster", "stop", "--name", "big"]) == 0
    assert left(state) == ([], [])


# -- in the foreground ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_foreground_ends_at_a_signal(number, state):
    with command("start", "--foreground", "--cluster", "local", "-n", "2", "--json") as process:
        text = "".join(iter(process.stdout.readline, "}\n")) + "}"
        entry = find("default")
        assert json.loads(text)["pid"] == entry.pid == process.pid
        process.send_signal(number)
        assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == 0
    assert left(state) == ([], [])


# -- several hosts, one home folder ---------------------------------------------------------------


def test_a_cluster_of_another_host(state):
    mine = registry.this_process("default", "mpi", "far")
    # No process listens there; on its own host the daemon may still run.
    there = replace(mine, host="far.host", address="tcp://127.0.0.1:1", workers=4, pid_started=1)
    registry.claim(there, registry.draft("far"))
    assert run(["cluster", "status"]) == 0
    assert run(["cluster", "stop"]) == 1
    assert run(["cluster", "stop", "--all"]) == 0
    assert all_registered() == [there]
