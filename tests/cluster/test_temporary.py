"""What a killed process leaves in the temporary folder goes at the next start, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock import connect
from penstock.cluster.temporary import make_folder, remove_folder, temporary_folder

HOLD = """
import sys, time
from penstock.cluster.temporary import make_folder
folder, held = make_folder("local")
print(folder, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_swept(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    (left / "dask-scratch-space").mkdir()
    try:
        folder, held = make_folder("local")
        assert left.exists()  # its process lives
        remove_folder(folder, held)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert left.exists()
    with connect("threads"):
        assert not left.exists()
    assert not list(temporary.iterdir())


def test_what_is_not_provably_ours_stays(temporary: Path) -> None:
    target = temporary / "data"
    target.mkdir()
    without_lock = temporary / "penstock-local-without"
    without_lock.mkdir()
    linked = temporary / "penstock-local-link"
    linked.symlink_to(target)
    (temporary / ".penstock-local-link.lock").touch()
    other = temporary / "penstock-world-other"
    other.mkdir()
    (temporary / ".penstock-world-other.lock").touch()
    with_link = temporary / "penstock-local-lock"
    with_link.mkdir()
    (target / "file").touch()
    (temporary / ".penstock-local-lock.lock").symlink_to(target / "file")
    theirs = temporary / "penstock-local-theirs"
    theirs.mkdir()
    (temporary / ".penstock-local-theirs.lock").touch()
    if os.geteuid() == 0:
        os.chown(temporary / ".penstock-local-theirs.lock", 65534, 65534)
    else:
        theirs = temporary
    with temporary_folder("local"):
        pass
    for path in (without_lock, linked, other, with_link, theirs, target / "file"):
        assert path.exists(), path
