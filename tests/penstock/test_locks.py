"""Locks keep processes apart, and end with their process."""

import subprocess
import sys

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
    try_lock(path).release()


class GivenUp(Exception):
    """Waiting takes too long."""


def test_it_ends_with_its_process(tmp_path):
    path = tmp_path / "lock"

    def at_most(patience):
        def waiting(seconds):
            if seconds > patience:
                raise GivenUp

        return waiting

    command, pipe = [sys.executable, "-P", "-c", HOLD, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(GivenUp):
            lock(path, at_most(0.1))
        process.kill()
        process.wait()
    lock(path, at_most(10)).release(remove=True)
    assert not path.exists()
