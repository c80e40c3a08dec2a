"""The table and the timeline of ``--profile``."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipelines.gnn.profile import profile_text, rank_times


def epoch(number: int, halo: float, gradient: float, compute: float = 0.6) -> list[list[Any]]:
    """Return an epoch of about a second: waits lie within what is computed."""
    at = float(number)
    return [
        [number, "halo: wait", "halo", at + 0.1, at + 0.1 + halo],
        [number, "layer 1", "compute", at, at + compute + halo],
        [number, "sums: wait", "gradient", at + 0.9 - gradient, at + 0.9],
        [number, "update", "compute", at + 0.9, at + 0.95],
    ]


@pytest.fixture
def profile() -> dict[str, Any]:
    def rank(compute: float) -> dict[str, Any]:
        rows = epoch(0, 0.3, 0.3)  # it compiles
        rows += epoch(1, 0.05, 0.02, compute) + epoch(2, 0.05, 0.02, compute)
        rows += epoch(3, 0.05, 0.02, compute)
        return {"timeline": [*rows, [4, "loss", "compute", 4.0, 4.5]]}

    return {"ranks": [rank(0.55), rank(0.35)]}


def test_inner_spans_are_not_counted_twice(profile: dict[str, Any]) -> None:
    first, second = rank_times(profile)
    assert first["compute"] == pytest.approx(0.6)
    assert second["compute"] == pytest.approx(0.4)
    assert first["halo"] == pytest.approx(0.05)
    assert first["gradient"] == pytest.approx(0.02)
    assert first["imbalance"] == pytest.approx(1.2)
    assert second["imbalance"] == pytest.approx(0.8)


def test_the_text_has_a_line_a_rank_and_a_bar_a_rank(profile: dict[str, Any]) -> None:
    lines = profile_text(profile).splitlines()
    assert lines[0].split() == "rank compute halo allreduce imbalance".split()
    assert lines[1].split() == ["ms", "ms", "ms"]
    assert lines[2].split() == ["0", "600.0", "50.000", "20.000", "1.20"]
    bars = [line for line in lines if "█" in line and "compute" not in line]
    assert len(bars) == 2
    drawn = bars[0].split(maxsplit=1)[1]
    assert len(drawn) == 72
    # A tenth of the epoch in, the rank waits for its halo.
    assert drawn.count("▒") == pytest.approx(0.05 / 0.95 * 72, abs=1)
    assert drawn.index("▒") == pytest.approx(0.1 / 0.95 * 72, abs=1)
    assert "░" in drawn
    assert lines[-1].split() == ["sums:", "wait", "20.000", "ms", "3", "%"]


def test_one_rank_exchanges_nothing() -> None:
    lines = profile_text({"ranks": [{"timeline": epoch(0, 0, 0) + epoch(1, 0, 0)}]}).splitlines()
    assert lines[0].split() == ["rank", "compute"]


def test_no_whole_epoch_no_timeline() -> None:
    assert "no timeline" in profile_text({"ranks": [{"timeline": []}]})
