"""Locks keep processes apart, die with their holder."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from penstock.locks import lock, try_lock

HOLD = """
import sys
from pathlib import Path
from penstock.locks import try_lock
held = try_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path):
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


def test_one_alone_or_several_together(tmp_path):
    path = tmp_path / "lock"
    alone = try_lock(path)
    assert alone is not None
    assert try_lock(path) is None
    assert try_lock(path, shared=True) is None
    assert alone.share()
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


class GivenUp(Exception):
    """What who waits too long raises here."""


def at_most(patience):
    def waiting(seconds):
        if seconds > patience:
            raise GivenUp

    return waiting


def test_it_dies_with_its_process(tmp_path):
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(GivenUp):
            lock(path, at_most(0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        lock(path, at_most(10)).release(remove=True)
    assert not path.exists()
