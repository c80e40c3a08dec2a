"""Locks keep processes apart, die with their holder, and name who hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.errors import ClusterError, UsageError
from penstock.workers import locks
from penstock.workers.locks import lock, try_lock

HOLD = """
import sys
from pathlib import Path
from types import SimpleNamespace
from penstock.workers.locks import try_lock
held = try_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_alone_or_several_together(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    alone = try_lock(path)
    assert alone is not None
    assert try_lock(path) is None
    assert try_lock(path, shared=True) is None
    assert path.read_text() == str(os.getpid())
    assert alone.share()
    assert path.read_text() == ""
    with_it = try_lock(path, shared=True)
    assert with_it is not None
    assert try_lock(path) is None
    alone.release()
    alone.release()
    assert try_lock(path) is None
    with_it.release()
    again = try_lock(path)
    assert again is not None
    again.release()


def test_a_file_that_was_removed_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_lock(path)
    assert first is not None
    path.unlink()
    second = try_lock(path)
    assert second is not None
    assert not first.share()
    assert try_lock(path) is None
    first.release()
    second.release()


def test_it_dies_with_its_process_and_the_time_out_names_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(ClusterError, match=f"copying g waits for process {process.pid}, "):
            lock(path, patience=0.1, what="copying g")
        process.send_signal(signal.SIGKILL)
        process.wait()
        lock(path, patience=10, what="copying g").release()


def test_who_is_at_work_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, turns = tmp_path / "lock", []
    busy = try_lock(path)
    assert busy is not None

    def sleep(_: float) -> None:
        turns.append(1)
        os.utime(path, ns=(len(turns), len(turns)))
        clock[0] += 0.9
        if len(turns) == 20:
            busy.release()

    clock = [0.0]
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    lock(path, patience=1, what="copying").release()
    assert len(turns) == 20


def test_threads_take_turns(tmp_path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        for _ in range(5):
            held = lock(tmp_path / "lock", patience=10, what="a test")
            inside.append(1)
            assert len(inside) == 1
            inside.pop()
            held.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("penstock.locks.fcntl.flock", no_locks)
    with pytest.raises(UsageError, match="has no locks.*Function not impl.*--worker-scratch"):
        try_lock(tmp_path / "lock")
