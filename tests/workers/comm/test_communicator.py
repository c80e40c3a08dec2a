"""What ranks say to each other arrives, in every type, size and order, whoever does the sending.

The cases are functions in ranks/communicator.py, which mpiexec starts; each world runs all of
them, because to start one takes longer than most of them.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from penstock.sizes import available_memory

pytestmark = pytest.mark.mpi

PROGRAM = Path(__file__).parent / "ranks" / "communicator.py"
LISTS = dict(re.findall(r"^([A-Z_]+) = \[(.*?)\]$", PROGRAM.read_text(), re.MULTILINE | re.DOTALL))
WAITING, CASES, WHOLE_ONLY = (
    re.findall(r"\w+", LISTS[name]) for name in ("WAITING", "CASES", "WHOLE_ONLY")
)
CASES = [case for case in CASES if case != "WAITING"] + WAITING
# How the program is started, and what it then does.
WORLDS = {
    ("whole", 3): CASES,
    ("whole", 1): CASES,
    ("pieces", 2): [case for case in CASES if case not in WHOLE_ONLY + WAITING],
}


@pytest.fixture(scope="module")
def world(mpirun):
    @cache
    def run(mode, ranks):
        return mpirun(PROGRAM, ranks, mode, timeout=120)

    return run


def check(ended, case):
    failed = re.search(r"FAILED in (\w+)", ended.stdout)
    if re.search(rf"passed {case}\b", ended.stdout):
        return
    if failed and failed[1] != case:
        pytest.skip(f"{failed[1]} failed before")
    pytest.fail(f"{case} did not pass:\n{ended.stdout}")


@pytest.mark.parametrize(
    ("mode", "ranks", "case"),
    [
        pytest.param(*how, case, marks=pytest.mark.slow if how[0] == "pieces" else ())
        for how, cases in WORLDS.items()
        for case in cases
    ],
)
def test_against_numpy(world, mode, ranks, case):
    check(world(mode, ranks), case)


@pytest.mark.parametrize(
    ("mode", "ranks"),
    [pytest.param(*how, marks=pytest.mark.slow if how[0] == "pieces" else ()) for how in WORLDS],
)
def test_all_ranks_end_in_order(world, mode, ranks):
    assert world(mode, ranks).returncode == 0, world(mode, ranks).stdout


@pytest.mark.slow
def test_more_than_int_can_count(mpirun):
    if available_memory() < 14 << 30:  # of which tests that run beside it take some
        pytest.skip("needs 14 GB of memory")
    ended = mpirun(PROGRAM, 2, "whole", "beyond_int", timeout=300)
    check(ended, "beyond_int")
