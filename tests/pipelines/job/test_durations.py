"""What ``--plan`` expects of a run's time, by the runs before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.durations import devices_key, expected_seconds, keep_duration
from penstock.pipelines.job.plan import format_seconds


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_line_through_runs_of_several_sizes() -> None:
    for amount in (1e6, 2e6, 8e6):
        keep_duration("walk", amount, 2 + amount * 1e-6)
    assert expected_seconds("walk", 100e6) == (pytest.approx(102), 3)
    assert expected_seconds("walk", 10) == (pytest.approx(2.00001), 3)
    assert expected_seconds("etl", 10) is None


def test_of_one_size_nothing_is_taken_to_be_shorter() -> None:
    keep_duration("walk", 1e6, 3)
    assert expected_seconds("walk", 10) == (3, 1)
    assert expected_seconds("walk", 4e6) == (12, 1)
    # But what is left of a run is.
    assert expected_seconds("walk", 0.5e6, rest=True) == (1.5, 1)
    assert expected_seconds("walk", 0, rest=True) == (0, 1)
    # Times that shrink as amounts grow are noise: the median counts.
    keep_duration("walk", 2e6, 1)
    keep_duration("walk", 3e6, 2)
    assert expected_seconds("walk", 1) == (2, 3)


def test_of_far_larger_amounts_nothing_is_said() -> None:
    keep_duration("etl", 1e5, 3)  # of which all but a moment is its start
    keep_duration("etl", 1.1e5, 2)
    assert expected_seconds("etl", 1e6) is not None
    assert expected_seconds("etl", 1e8) is None


def test_the_last_runs_count() -> None:
    for _ in range(3):
        keep_duration("walk", 1e6, 100)
    for _ in range(8):
        keep_duration("walk", 1e6, 5)
    assert expected_seconds("walk", 1e6) == (5, 8)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0095312, "0.0095 s"), (1.6449, "1.6 s"), (4.0, "4 s"), (9.97, "10 s"),
        (102.4, "100 s"), (1294, "1,300 s"), (9000, "2.5 h"), (1e5, "28 h"), (2.516e6, "29 d"),
    ],
)  # fmt: skip
def test_a_time_has_the_digits_that_are_known(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "runs": {"walk": [3]}}', "\0"])
def test_a_damaged_file_is_written_anew(cache: Path, text: str) -> None:
    keep_duration("walk", 1e6, 3)
    [file] = cache.iterdir()
    file.write_text(text)
    assert expected_seconds("walk", 1e6) is None
    keep_duration("walk", 1e6, 4)
    assert expected_seconds("walk", 1e6) == (4, 1)


def test_no_work_is_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert expected_seconds("walk", 0) is None


def test_devices_are_told_apart_by_kind_and_count() -> None:
    cpu = Capacity(rows=1, memory=1, on_gpu=False, workers=4)
    shared = Capacity(rows=1, memory=1, on_gpu=True, workers=4, gpus=2)
    assert devices_key(cpu) == "cpu 4"
    assert devices_key(shared) == "gpu 2"
    assert devices_key(cpu, 1) == "cpu 1", "of ranks, not of all workers that are there"
