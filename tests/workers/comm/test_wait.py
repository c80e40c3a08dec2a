"""Waiting for requests of MPI ends when they are done, in time, or when another thread says so.

The checks are functions in ranks/waiting.py, which mpiexec starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mpi

PROGRAM = Path(__file__).parent / "ranks" / "waiting.py"
CHECKS = re.findall(r"^@check\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, id="alone", marks=pytest.mark.slow), pytest.param(3, id="3 ranks")],
)
def ended(request: pytest.FixtureRequest, mpirun: Callable[..., Any]) -> Any:
    return mpirun(PROGRAM, request.param, timeout=120)


@pytest.mark.parametrize("check", CHECKS)
def test_ranks(ended: Any, check: str) -> None:
    assert re.search(rf"passed {check}\b", ended.stdout), ended.stdout


def test_all_ranks_leave_mpi_in_order(ended: Any) -> None:
    assert ended.returncode == 0, ended.stdout
