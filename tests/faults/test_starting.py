"""Workers that are killed, or stopped, while a cluster starts: a sentence that names them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

WITHIN = 25.0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child.pid)
    return found


def struck_while_starting(folder: Path, number: int, seconds: float) -> tuple[str, int]:
    """Send a signal to the first worker of a command, and return what that said, and the worker."""
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
        assert process.returncode == 1
    assert not psutil.pid_exists(found[0])
    return error, found[0]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.4, 0.8])
def test_a_worker_that_is_killed(tmp_path: Path, seconds: float) -> None:
    error, _ = struck_while_starting(tmp_path, signal.SIGKILL, seconds)
    assert "Traceback" not in error
    assert re.search(
        r"penstock: the workers did not start: the process of worker \d ended, or was killed\. "
        r"See whether memory ran out",
        error,
    )


@pytest.mark.slow
def test_a_worker_that_is_stopped(tmp_path: Path) -> None:
    error, pid = struck_while_starting(tmp_path, signal.SIGSTOP, 0.0)
    assert "Traceback" not in error
    assert re.search(
        rf"penstock: 1 of 2 workers did not arrive \(worker \d, process {pid}\)\. "
        r"Expected all of them within 6 s\. See whether .* or a process is stopped",
        error,
    )
