"""The table and the timeline of ``--profile``."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipelines.gnn.profile import rank_times


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
