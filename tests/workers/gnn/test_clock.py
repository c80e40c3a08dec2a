"""The clock of a rank: spans by name and kind, inner ones taken from the outer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.workers.gnn import clock as module
from penstock.workers.gnn.clock import Clock


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let time pass only when it is told to."""
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    def tick(seconds: float) -> None:
        now[0] += seconds

    return tick


def test_inner_spans_are_taken_from_outer_ones(ticks: Any) -> None:
    clock = Clock()
    with clock.span("layer", "compute"):
        ticks(1)
        with clock.span("post", "halo"):
            ticks(2)
            with clock.span("pack", "compute"):
                ticks(4)
        ticks(8)
        with clock.span("sum", "gradient"):
            ticks(16)
    ticks(32)  # nobody's
    with clock.span("save", "other"):
        ticks(64)
    assert clock.epoch_done() == {"compute": 13, "halo": 2, "gradient": 16, "other": 64}
    assert clock.epoch_done() == dict.fromkeys(module.KINDS, 0)
    assert clock.totals() == {
        "layer": ("compute", 9, 1),
        "post": ("halo", 2, 1),
        "pack": ("compute", 4, 1),
        "sum": ("gradient", 16, 1),
        "save": ("other", 64, 1),
    }
    assert clock.timeline() == []


def test_totals_are_those_of_all_epochs(ticks: Any) -> None:
    clock = Clock()
    for _ in range(3):
        with clock.span("layer", "compute"):
            ticks(1)
        assert clock.epoch_done()["compute"] == 1
    assert clock.totals() == {"layer": ("compute", 3, 3)}


def test_a_span_within_one_of_the_same_name(ticks: Any) -> None:
    clock = Clock(timeline=True)
    with clock.span("layer", "compute"):
        ticks(1)
        with clock.span("layer", "compute"):
            ticks(2)
            with clock.span("layer", "compute"):
                ticks(4)
        ticks(8)
    assert clock.epoch_done()["compute"] == 15
    assert clock.totals() == {"layer": ("compute", 15, 3)}
    assert [row.end - row.start for row in clock.timeline()] == [4, 6, 15]


def test_the_timeline_has_every_span(ticks: Any) -> None:
    clock = Clock(timeline=True)
    ticks(1)
    with clock.span("layer", "compute"):
        ticks(1)
        with clock.span("wait", "halo"):
            ticks(2)
    clock.epoch_done()
    with clock.span("layer", "compute"):
        ticks(1)
    assert clock.timeline() == [
        (0, "wait", "halo", 2, 4),
        (0, "layer", "compute", 1, 4),
        (1, "layer", "compute", 4, 5),
    ]


def test_what_fails_is_booked_too(ticks: Any) -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="no"), clock.span("layer", "compute"):
        ticks(1)
        with clock.span("wait", "halo"):
            ticks(2)
            raise ValueError("no")
    with clock.span("layer", "compute"):
        ticks(4)
    assert clock.epoch_done() == {"compute": 5, "halo": 2, "gradient": 0, "other": 0}


def test_a_span_costs_next_to_nothing() -> None:
    clock, best = Clock(), 1.0
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(500):
            with clock.span("layer", "compute"):
                pass
        best = min(best, (time.perf_counter() - start) / 500)
    assert best < 10e-6  # one here; this machine may be busy
