"""A scheduler that hangs ends a command with a sentence, when it starts and in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import connect, gang
from penstock.cluster import query
from penstock.cluster.connect import leave_interrupts_to_client
from penstock.cluster.daemon.registry import Registered, find
from penstock.cluster.devices import warn_of_unused_gpus
from penstock.cluster.mpi.attach import start_world
from penstock.cluster.running import Running
from penstock.cluster.startup import check_versions, wait_for_workers
from penstock.errors import ClusterError, SilentScheduler
from penstock.pipelines.cli import run as penstock
from penstock.pipelines.job.capacity import capacity_of
from penstock.pipelines.job.tasks import run_tasks

pytestmark = pytest.mark.slow


@pytest.fixture(params=["tls", "tcp"])
def kept(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registered]:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    more = ["--no-tls"] if request.param == "tcp" else []
    assert penstock(["cluster", "start", "--kind", "local", "-n", "1", "-q", *more]) == 0
    entry = find("default")
    assert entry is not None
    assert (entry.address or "").startswith(request.param)
    yield entry
    os.kill(entry.pid, signal.SIGCONT)
    assert penstock(["cluster", "stop", "-q"]) == 0


@contextmanager
def frozen(entry: Registered) -> Iterator[None]:
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(entry.pid, signal.SIGCONT)


def test_before_a_command_connects(kept: Registered, tmp_path: Path) -> None:
    edges = tmp_path / "edges.txt"
    edges.write_text("1 2\n")
    command = ["etl", str(edges), str(tmp_path / "g"), "--cluster", "default"]
    with frozen(kept):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "penstock", *command, "--start-timeout", "5"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "penstock: no Dask scheduler answers at" in done.stderr
    assert time.monotonic() - began < 40


def test_while_workers_are_waited_for(kept: Registered) -> None:
    began = 0.0
    with (
        pytest.raises(ClusterError, match=r"hangs, or cannot be reached\. Expected an answer"),
        connect("default", start_timeout=5) as client,
        frozen(kept),
    ):
        began = time.monotonic()
        wait_for_workers(client, Running(None, 2), 3, quiet=True)
    assert time.monotonic() - began < 20


def test_every_question_of_a_client(kept: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect("default", start_timeout=5) as client:
        questions: dict[str, Callable[[], Any]] = {
            "versions": lambda: check_versions(client),
            "GPUs": lambda: warn_of_unused_gpus(client),
            "capacity": lambda: capacity_of(client),
            "a gang": lambda: gang.run(client, os.getpid, ranks=2, start_timeout=2),
            "a world": lambda: start_world(client, 2, 2),
            "a plugin": lambda: leave_interrupts_to_client(client),
        }
        monkeypatch.setattr(query, "SILENT_SECONDS", 1.0)
        with frozen(kept):
            for what, question in questions.items():
                began = time.monotonic()
                with pytest.raises(SilentScheduler, match=r"hangs, or cannot be reached"):
                    question()
                assert time.monotonic() - began < 10, what


@pytest.mark.mpi
def test_in_the_middle_of_a_gang(kept: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    def rank_of(comm: Any) -> int:
        return int(comm.rank)

    def rank_that_waits(comm: Any) -> int:
        time.sleep(600)
        return int(comm.rank)

    monkeypatch.setattr(query, "SILENT_SECONDS", 3.0)
    with connect("default", start_timeout=20) as client:
        assert gang.run(client, rank_of, ranks=2) == [0, 1]
        freeze = threading.Timer(2, os.kill, (kept.pid, signal.SIGSTOP))
        freeze.start()
        began = time.monotonic()
        try:
            with pytest.raises(SilentScheduler, match=r"hangs, or cannot be reached"):
                gang.run(client, rank_that_waits, ranks=2)
        finally:
            freeze.join()
            os.kill(kept.pid, signal.SIGCONT)
    assert time.monotonic() - began < 40


def test_a_worker_that_is_stopped_is_named(
    kept: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect("default", start_timeout=5) as client:
        (pid,) = client.run(os.getpid).values()
        monkeypatch.setattr(query, "SILENT_SECONDS", 4.0)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(
                ClusterError, match=rf"worker 0 \(process {pid} on 127.0.0.1\) does not answer"
            ):
                warn_of_unused_gpus(client)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_in_the_middle_of_a_step(kept: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "SILENT_SECONDS", 3.0)
    began = 0.0
    with (
        pytest.raises(ClusterError, match=r"hangs, or cannot be reached\. Expected an answer"),
        connect("default", start_timeout=5) as client,
        frozen(kept),
    ):
        began = time.monotonic()
        run_tasks(client, "sleep", time.sleep, [(600,)], sizes=[1], unit="tasks", quiet=True)
    assert time.monotonic() - began < 40
