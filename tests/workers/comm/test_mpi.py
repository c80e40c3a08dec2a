"""MPI is loaded only when asked for, and its absence is said in one paragraph."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from penstock.errors import ClusterError
from penstock.workers.comm.mpi import check_threads

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


def ask(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.mpi
def test_the_library_that_is_there_is_loaded_for_threads() -> None:
    answer = ask()
    if answer.returncode == 7:
        pytest.skip(f"no MPI here: {answer.stdout.strip()}")
    assert answer.returncode == 0, answer.stderr
    assert "MPI" in answer.stdout
    assert answer.stdout.endswith("True\n")


def fake(level: int) -> SimpleNamespace:
    return SimpleNamespace(
        THREAD_SINGLE=0,
        THREAD_FUNNELED=1,
        THREAD_SERIALIZED=2,
        THREAD_MULTIPLE=3,
        Query_thread=lambda: level,
        Get_library_version=lambda: "Open MPI v4.1.4, package: Debian\0",
    )


def test_an_mpi_without_threads_is_refused() -> None:
    check_threads(fake(3))
    with pytest.raises(ClusterError):
        check_threads(fake(1))
