"""Scratch is found, taken, cleaned of dead workers, and given back."""

import os
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
def unset(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SCRATCH", raising=False)


def other_worker(root):
    command, pipe = [sys.executable, "-P", "-c", TAKE, str(root)], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    return process, Path(process.stdout.readline().strip())


def test_a_named_folder_is_made_or_is_an_error(tmp_path, monkeypatch):
    assert find_scratch(tmp_path / "a/b") == tmp_path / "a/b"
    assert list((tmp_path / "a/b").iterdir()) == []
    monkeypatch.setenv("JOB", str(tmp_path / "job"))
    assert find_scratch("$JOB/x") == tmp_path / "job/x"
    monkeypatch.setenv("PENSTOCK_SCRATCH", str(tmp_path / "said"))
    assert find_scratch() == tmp_path / "said"
    assert find_scratch(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=str(tmp_path / "file")):
        find_scratch(tmp_path / "file")


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


def test_folders_of_dead_workers_of_this_host_are_removed(tmp_path):
    (killed, dead), (running, alive) = (other_worker(tmp_path) for _ in range(2))
    elsewhere = dead.parent / "worker-another.host-0badc0de"
    elsewhere.mkdir()
    (dead.parent / f".{elsewhere.name}.lock").touch()
    killed.kill()
    killed.communicate(timeout=20)
    assert dead.is_dir()
    mine = Scratch(tmp_path)
    assert not dead.exists()
    assert alive.is_dir()
    running.communicate(timeout=20)
    mine.close()
    assert sorted(os.listdir(dead.parent)) == [f".{elsewhere.name}.lock", elsewhere.name]


def test_a_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"penstock-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        Scratch(tmp_path)
    assert os.listdir(tmp_path / "elsewhere") == []
