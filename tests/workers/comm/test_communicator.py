"""What ranks say to each other arrives, in every type, size and order, whoever does the sending.

The cases are functions in ranks/communicator.py, which mpiexec starts; each world runs all of
them, because to start one takes longer than most of them.
"""

from pathlib import Path

import pytest

from penstock.sizes import available_memory

pytestmark = pytest.mark.mpi

PROGRAM = Path(__file__).parent / "ranks" / "communicator.py"


@pytest.mark.parametrize(
    ("mode", "ranks"),
    [("whole", 3), ("whole", 1), pytest.param("pieces", 2, marks=pytest.mark.slow)],
)
def test_against_numpy(mpirun, mode, ranks):
    ended = mpirun(PROGRAM, ranks, mode, timeout=120)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_more_than_int_can_count(mpirun):
    if available_memory() < 14 << 30:  # of which tests that run beside it take some
        pytest.skip("needs 14 GB of memory")
    ended = mpirun(PROGRAM, 2, "whole", "beyond_int", timeout=300)
    assert ended.returncode == 0, ended.stdout
