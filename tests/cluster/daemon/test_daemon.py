"""What the command that starts a daemon waits for, and for how long."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from penstock.cluster.daemon import daemon, registry
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError

SPEC = ClusterSpec(cluster="local", workers=2, start_timeout=0.3)


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, int]]:
    hear, tell = os.pipe()
    with os.fdopen(hear, "rb") as answers:
        yield answers, tell


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_daemon_that_is_stopped_while_it_answers(
    pipe: tuple[BinaryIO, int],
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon, "_LOADING", 0.2)
    said = pickle.dumps((registry.this_process("big", "local"), ""))
    os.write(pipe[1], said[:50])
    try:
        with pytest.raises(ClusterError, match=r"is not ready after 0 s.*2 workers within 0.3 s"):
            daemon._answer(pipe[0], process, "big", SPEC, lambda text: None)
    finally:
        os.close(pipe[1])


def test_a_daemon_that_closes_the_pipe_and_does_not_end(
    pipe: tuple[BinaryIO, int],
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon, "STOP_TIMEOUT", 0.1)
    os.close(pipe[1])
    answer = daemon._answer(pipe[0], process, "big", SPEC, lambda text: None)
    assert "ended before every worker had connected" in str(answer)


def test_what_is_waited_for_is_said_once_and_the_answer_read_whole(
    pipe: tuple[BinaryIO, int],
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon, "_SAY_AFTER", 0.1)
    entry = registry.this_process("big", "local", log="x" * 5000)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        os.write(pipe[1], pickle.dumps((entry, "")))
        os.close(pipe[1])

    assert daemon._answer(pipe[0], process, "big", SPEC, say) == entry
    assert told == ["waiting for 2 workers of cluster big (local), up to 0.3 s"]
