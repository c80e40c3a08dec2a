import re
import sys
from types import SimpleNamespace

import pytest

from penstock import progress as module
from penstock.progress import Elapsed, Progress


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


def test_throughput_is_in_the_jobs_own_unit(clock, capsys):
    run(clock, steps=100, seconds=100)
    assert "1 edges/s" in capsys.readouterr().err
    with Progress("read", total=4000, unit="B", quiet=False) as progress:
        clock(4)
        progress.advance(4000)
    assert capsys.readouterr().err == "read: 100 %, 1 kB/s\n"


def test_a_few_workers_are_counted_without_a_rate(clock, capsys):
    with Progress("start workers", total=2, unit="workers", quiet=False) as progress:
        clock(4.7)
        progress.advance(1)
    assert capsys.readouterr().err == "start workers: 50 %, 1 of 2 workers\n"


def test_quiet_is_silent(clock, capsys):
    run(clock, steps=100, seconds=100, quiet=True)
    assert capsys.readouterr() == ("", "")


def test_more_than_was_announced_is_not_more_than_all(clock, capsys):
    with Progress("count", total=0, unit="edges", quiet=False) as progress:
        clock(5)
        progress.advance(7)
    assert "count: 100 %" in capsys.readouterr().err


def test_a_terminal_gets_a_bar_that_is_closed(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = Progress("count", total=10, unit="edges", quiet=False)
    with pytest.raises(KeyError), bar as progress:
        clock(5)
        progress.advance(5)
        assert progress._bar.live.is_started
        raise KeyError
    assert not progress._bar.live.is_started
    assert "count" in capsys.readouterr().err


def wait(clock, *, estimated, seconds, quiet=False):
    with Elapsed("METIS", estimated=estimated, quiet=quiet) as elapsed:
        for _ in range(int(seconds / 0.5)):
            clock(0.5)
            elapsed.show()


def test_work_that_tells_nothing_shows_its_time(clock, capsys):
    wait(clock, estimated=1044, seconds=1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 9
    assert lines[0] == "METIS: 1.7 minutes of about 17.4 minutes"


def test_work_that_takes_longer_than_estimated_says_so_ever_less_often(clock, capsys):
    wait(clock, estimated=10, seconds=1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 18
    assert lines[-1] == "METIS: 10.7 minutes, longer than the estimated 10 s"


def test_a_log_repeats_no_rounded_time(clock, capsys):
    wait(clock, estimated=120, seconds=1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(set(lines)) == len(lines)
    wait(clock, estimated=0.5, seconds=1000)
    assert capsys.readouterr().err.splitlines()[0] == "METIS: 10 s, longer than the estimated 0 s"


@pytest.mark.parametrize(("seconds", "quiet"), [(9.5, False), (100, True)])
def test_short_or_quiet_waits_are_silent(clock, capsys, seconds, quiet):
    wait(clock, estimated=1, seconds=seconds, quiet=quiet)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_time_as_a_bar(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    wait(clock, estimated=60, seconds=30)
    assert "30 s of about 60 s" in capsys.readouterr().err


def test_quiet_has_one_default(root):
    """What users call is quiet; what it calls is told."""
    folders = ("penstock", "kernels", "partition", "workers", "cluster", "pipelines")
    sources = [path for folder in folders for path in (root / folder).rglob("*.py")]
    defaults = [re.findall(r"\bquiet: bool = (\w+)", path.read_text()) for path in sources]
    assert {one for found in defaults for one in found} == {"True"}
