"""Workers killed or stopped while they start, a daemon killed under a job: sentences, in time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import WorkerPlugin

from penstock import connect
from penstock.cluster.daemon.registry import find
from penstock.errors import ClusterError
from penstock.pipelines.cli import run

connecting = import_module("penstock.cluster.connect")
WITHIN = 25.0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child.pid)
    return found


def struck_while_starting(folder: Path, number: int, seconds: float) -> tuple[str, int, int]:
    """Send a signal to the first worker of a command.

    Return what the command said, the worker, and the exit code.
    """
    (folder / "edges.txt").write_text("1 2\n2 3\n")
    words = ["etl", "edges.txt", "g", "--cluster", "local", "-n", "2", "--start-timeout", "6"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", *words],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (found := workers_of(process)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(found[0], number)
        began = time.monotonic()
        error = process.communicate(timeout=60)[1]
        assert time.monotonic() - began < WITHIN
    assert not psutil.pid_exists(found[0])
    return error, found[0], process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.4, 0.6, 0.7, 0.8, 1.0])
def test_a_worker_that_is_killed(tmp_path: Path, seconds: float) -> None:
    error, _, code = struck_while_starting(tmp_path, signal.SIGKILL, seconds)
    assert "Traceback" not in error
    if seconds and code == 0:
        return  # on a fast machine it had started, and another took its place
    assert code == 1
    assert re.search(
        r"penstock: the workers did not start: the process of worker \d ended, or was killed\. "
        r"See whether memory ran out",
        error,
    )


def ending_once(mark: Path) -> WorkerPlugin:
    """Return what ends the first worker that hears of it, as if killed while it is spoken to."""

    class EndsOnce(WorkerPlugin):  # in here it travels by value, to workers that know no tests
        def setup(self, worker: Any) -> None:
            with suppress(FileExistsError):
                mark.mkdir()
                os._exit(1)

    return EndsOnce()


@pytest.mark.slow
def test_a_worker_that_ends_while_it_is_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dask then closes the connection of the client that asked, as if the scheduler had ended.
    first, again, tries = tmp_path / "first", tmp_path / "again", []

    def give_resources(client: Any, spec: Any) -> None:
        tries.append(spec)
        client.register_plugin(ending_once(first), name="ends-once")
        original(client, spec)

    original = connecting._give_resources
    monkeypatch.setattr(connecting, "_give_resources", give_resources)
    with (
        pytest.raises(ClusterError, match="a worker ended, or its connection broke"),
        connect("local", workers=2, start_timeout=60) as client,
    ):
        assert len(tries) == 2
        assert len(client.run(os.getpid)) == 2
        client.register_plugin(ending_once(again), name="ends-again")
    assert again.exists()


@pytest.mark.slow
def test_a_worker_that_is_stopped(tmp_path: Path) -> None:
    error, pid, code = struck_while_starting(tmp_path, signal.SIGSTOP, 0.0)
    assert (code, "Traceback" in error) == (1, False)
    assert re.search(
        rf"penstock: 1 of 2 workers did not connect \(worker \d, process {pid}\)\. "
        r"Expected all of them within 6 s\. See whether .* or a process is stopped",
        error,
    )


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    edges = tmp_path / "edges.txt"
    edges.write_text("".join(f"{i} {i * 7 % 5000}\n" for i in range(20_000)))
    assert run(["etl", str(edges), str(tmp_path / "graph"), "--cluster", "threads", "-q"]) == 0
    return tmp_path / "graph"


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 1.0])
def test_a_daemon_that_is_killed_under_a_job(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    assert run("cluster start --kind local -n 1 -q --dashboard none".split()) == 0
    cluster = find("default")
    assert cluster is not None
    try:
        port = int((cluster.address or "").rpartition(":")[2])
        words = f"walk {graph} {tmp_path / 'w'} --length 3000 --start-timeout 5 --cluster default"
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "penstock", *words.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            until_connected(process, port)
            time.sleep(seconds)
            os.kill(cluster.pid, signal.SIGKILL)
            error = process.communicate(timeout=90)[1]
        assert process.returncode == 1
        assert "Traceback" not in error
        assert "This is a bug" not in error
        assert re.search(r"penstock: (the|no Dask) scheduler .*(start it|Start)", error)
    finally:
        assert run(["cluster", "stop", "-q"]) == 0


def until_connected(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(psutil.Error):
            connections = psutil.Process(process.pid).net_connections("tcp")
            if any(one.raddr and one.raddr.port == port for one in connections):
                return
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    pytest.fail("the command did not connect")
