"""Scratch is found, taken, cleaned of the dead, and given back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.temporary import host_name
from penstock.workers.resources.scratch import Scratch, find_scratch

TAKE = """
import sys
from pathlib import Path
from penstock.workers.resources.scratch import Scratch
mine = Scratch(Path(sys.argv[1]))
print(mine.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SCRATCH", raising=False)


def other_worker(root):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", TAKE, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process, how=None):
    if how is not None:
        process.send_signal(how)
    process.communicate(timeout=20)


# -- finding --------------------------------------------------------------------------------------


def test_a_named_one_is_made(tmp_path, monkeypatch):
    assert find_scratch(tmp_path / "a/b") == tmp_path / "a/b"
    assert list((tmp_path / "a/b").iterdir()) == []
    monkeypatch.setenv("JOB", str(tmp_path / "job"))
    assert find_scratch("$JOB/x") == tmp_path / "job/x"
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "said"))
    assert find_scratch() == tmp_path / "said"
    assert find_scratch(tmp_path) == tmp_path


def test_a_named_one_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as error:
        find_scratch(tmp_path / "file")
    assert str(tmp_path / "file") in str(error.value)


# -- taking ---------------------------------------------------------------------------------------


def test_a_worker_comes_and_goes(tmp_path):
    mine = Scratch(tmp_path)
    assert mine.folder.name.startswith(f"worker-{host_name()}-")
    assert mine.base.stat().st_mode & 0o777 == 0o700
    (mine.folder / "file").write_text("x")
    (mine.copies / "copy").mkdir()
    other = Scratch(tmp_path)  # another worker of this process
    assert other.folder != mine.folder
    mine.close()
    assert not mine.folder.exists()
    assert (other.copies / "copy").is_dir()
    mine.close()
    other.close()
    assert os.listdir(tmp_path) == []


def test_left_behind_by_the_dead_only(tmp_path):
    killed, dead = other_worker(tmp_path)
    running, alive = other_worker(tmp_path)
    base = dead.parent
    elsewhere = base / "worker-another.host-0badc0de"
    elsewhere.mkdir()
    (base / ".worker-another.host-0badc0de.lock").touch()
    end(killed, signal.SIGKILL)
    assert dead.is_dir()
    mine = Scratch(tmp_path)
    assert not dead.exists()
    assert alive.is_dir()
    end(running)
    mine.close()
    assert sorted(os.listdir(base)) == [f".{elsewhere.name}.lock", elsewhere.name]


def test_a_base_that_is_not_ours(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"penstock-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        Scratch(tmp_path)
    assert os.listdir(tmp_path / "elsewhere") == []
