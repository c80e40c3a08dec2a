"""MPI is loaded only when asked for, and its absence is said in one paragraph."""

import os
import subprocess
import sys

import pytest

ASK = """
import sys
from penstock.errors import MissingExtra
from penstock.workers.comm.mpi import load_mpi
assert "mpi4py" not in sys.modules
try:
    MPI = load_mpi()
except MissingExtra as error:
    print(error)
    sys.exit(7)
print(MPI.Get_library_version(), MPI.Query_thread() == MPI.THREAD_MULTIPLE)
"""


def ask(**environment):
    return subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.mpi
def test_the_library_that_is_there_is_loaded_for_threads():
    answer = ask()
    if answer.returncode == 7:
        pytest.skip(f"no MPI here: {answer.stdout.strip()}")
    assert answer.returncode == 0, answer.stderr
    assert "MPI" in answer.stdout
    assert answer.stdout.endswith("True\n")
