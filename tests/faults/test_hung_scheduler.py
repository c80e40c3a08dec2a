"""A scheduler that hangs ends a command with a sentence, when it starts and in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import connect
from penstock.cluster import answer
from penstock.cluster.daemon.registry import Started, find
from penstock.cluster.running import Running
from penstock.cluster.startup import wait_for_workers
from penstock.errors import ClusterError
from penstock.pipelines.cli import run as penstock
from penstock.pipelines.job.tasks import run_tasks

pytestmark = pytest.mark.slow


@pytest.fixture(params=["tls", "tcp"])
def kept(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Started]:
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
def frozen(entry: Started) -> Iterator[None]:
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(entry.pid, signal.SIGCONT)


def test_before_a_command_connects(kept: Started, tmp_path: Path) -> None:
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


def test_while_workers_are_waited_for(kept: Started) -> None:
    began = 0.0
    with (
        pytest.raises(ClusterError, match=r"hangs, or cannot be reached\. Expected an answer"),
        connect("default", start_timeout=5) as client,
        frozen(kept),
    ):
        began = time.monotonic()
        wait_for_workers(client, Running(None, 2), 3, quiet=True)
    assert time.monotonic() - began < 20


def test_in_the_middle_of_a_stage(kept: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "SILENT_SECONDS", 3.0)
    began = 0.0
    with (
        pytest.raises(ClusterError, match=r"hangs, or cannot be reached\. Expected an answer"),
        connect("default", start_timeout=5) as client,
        frozen(kept),
    ):
        began = time.monotonic()
        run_tasks(client, "sleep", time.sleep, [(600,)], sizes=[1], unit="tasks", quiet=True)
    assert time.monotonic() - began < 40
