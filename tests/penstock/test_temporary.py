"""What a killed process leaves in the temporary folder goes at the next start, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock import connect
from penstock.temporary import TemporaryFolder, host_name

HOLD = """
import sys, time
from penstock.temporary import TemporaryFolder
folder = TemporaryFolder("penstock-threads")
print(folder.path, flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_left_is_swept(temporary):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    (left / "dask-scratch-space").mkdir()
    try:
        with TemporaryFolder("penstock-threads") as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            assert left.exists()  # its process lives
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert left.exists()
    with connect("threads"):
        assert not left.exists()
    assert not list(temporary.iterdir())


def test_what_is_not_provably_ours_stays(temporary):
    target = temporary / "data"
    target.mkdir()
    (target / "file").touch()
    named = [f"penstock-local-{host_name()}-{n:08x}" for n in range(5)]
    elsewhere = "penstock-local-another.host-00000000"
    for name in (*named[1:], elsewhere, f"penstock-world-{host_name()}-00000000"):
        (temporary / name).mkdir()
        if name != named[1]:  # it has no lock
            (temporary / f".{name}.lock").touch()
    (temporary / named[0]).symlink_to(target)
    (temporary / f".{named[0]}.lock").touch()
    (temporary / f".{named[2]}.lock").unlink()
    (temporary / f".{named[2]}.lock").symlink_to(target / "file")
    if os.geteuid() == 0:
        os.chown(temporary / f".{named[3]}.lock", 65534, 65534)
    left = {*temporary.iterdir()} - {temporary / named[4], temporary / f".{named[4]}.lock"}
    if os.geteuid() != 0:
        left -= {temporary / named[3], temporary / f".{named[3]}.lock"}
    with TemporaryFolder("penstock-local"):
        pass
    assert {*temporary.iterdir()} == left
    assert (target / "file").exists()
