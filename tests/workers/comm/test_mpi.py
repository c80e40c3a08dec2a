"""MPI is loaded only if it is asked for, with all threads allowed."""

import subprocess
import sys

import pytest

ASK = """
import sys
import penstock
from penstock.errors import MissingExtra
from penstock.workers.comm.mpi import load_mpi
assert "mpi4py" not in sys.modules
try:
    MPI = load_mpi()
except MissingExtra:
    sys.exit(7)
assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
"""


@pytest.mark.mpi
def test_the_library_is_loaded_for_threads():
    code = subprocess.run([sys.executable, "-P", "-c", ASK], check=False).returncode
    if code == 7:
        pytest.skip("no MPI here")
    assert code == 0
