"""Every command killed midway, or ended by Ctrl-C once or again and again, and then run again.

Nothing is published, no process is left, and the second run ends with the bytes of one that was not
disturbed. Midway is half the files that a job makes, moves and removes: the same place each time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from ended_commands import Commands
from every_job import JOBS, RESUMES, VISIBLE, published, results, run_again, words_of


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    found = Commands(tmp_path_factory.mktemp("commands"))
    yield found
    found.close()


Whole = Callable[[str], tuple[dict[str, bytes], int]]


@pytest.fixture(scope="module")
def whole(given: Path, commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return what gives the results of a job that nothing befalls, and how much it writes."""

    @cache
    def of(job: str) -> tuple[dict[str, bytes], int]:
        home = tmp_path_factory.mktemp("whole")
        code, said = commands.run(words_of(job, given, home / "out"), home)
        assert code == 0, said
        assert [one.name for one in home.iterdir()] == ["out"]
        return results(home / "out"), commands.count

    return of


def case(job: str, how: str) -> object:
    quick = (job, how) == ("walk", "ctrl-c")
    return pytest.param(job, how, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize(
    ("job", "how"), [case(job, how) for how in ("ctrl-c", "ctrl-c twice", "kill") for job in JOBS]
)
def test_a_command_that_is_ended_midway(
    job: str, how: str, given: Path, commands: Commands, whole: Whole, tmp_path: Path
) -> None:
    expected, count = whole(job)
    out = tmp_path / "out"
    words = words_of(job, given, out)
    code, said = commands.run(words, tmp_path, count // 2, how)
    left = {one.name for one in tmp_path.iterdir()} - {"out"}
    deadline = time.monotonic() + 30
    while commands.alive():
        assert time.monotonic() < deadline, "a process was left"
        time.sleep(0.01)
    if how == "kill":
        assert code == -signal.SIGKILL, said
    else:
        assert code == 1, said
        assert "penstock: interrupted" in said
        assert "Traceback" not in said
        assert left <= ({".out.partial"} if job in RESUMES - VISIBLE else set())
        assert ("--resume" in said) == (bool(left) or job in VISIBLE)
    assert not published(job, out)
    assert run_again(job, words) == 0
    assert results(out) == expected
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
