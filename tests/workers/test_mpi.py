"""MPI is loaded only when asked for, and its absence is said in one paragraph."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
import sys
from penstock.errors import MissingExtra
from penstock.workers.mpi import load_mpi
assert "mpi4py" not in sys.modules
try:
    print(load_mpi().Get_library_version())
except MissingExtra as error:
    print(error)
    sys.exit(7)
"""


def ask(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_a_missing_library_says_how_to_get_one() -> None:
    answer = ask(MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert answer.returncode == 7, answer.stderr
    assert "pip install 'penstock[mpich]'" in answer.stdout
    assert "/nowhere/libmpi.so" in answer.stdout


@pytest.mark.mpi
def test_the_library_that_is_there_is_loaded() -> None:
    answer = ask()
    if answer.returncode == 7:
        pytest.skip(f"no MPI here: {answer.stdout.strip()}")
    assert answer.returncode == 0, answer.stderr
    assert "MPI" in answer.stdout
