import re
from types import SimpleNamespace

import pytest

from penstock import progress as module
from penstock.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test turns."""
    now = [100.0]
    # In that module alone: a library that is first imported meanwhile would keep this clock.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def turn(seconds):
        now[0] += seconds

    return turn


def run(clock, *, steps, seconds, quiet=False):
    with Progress("count", total=steps, unit="edges", quiet=quiet) as progress:
        for _ in range(steps):
            clock(seconds / steps)
            progress.advance(1)


def test_short_work_is_silent(clock, capsys):
    run(clock, steps=1000, seconds=1.9)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("steps", [10, 1000, 12_345])
def test_a_log_gets_about_ten_lines_however_long(clock, capsys, steps):
    run(clock, steps=steps, seconds=3600)
    lines = capsys.readouterr().err.splitlines()
    assert 9 <= len(lines) <= 11
    assert lines[-1].startswith("count: 100 %, ")
    assert all(re.fullmatch(r"count: \d+ %, \S+( [kMG])? edges/s", line) for line in lines)
    shares = [int(line.split()[1]) for line in lines]
    assert shares == sorted(set(shares))
