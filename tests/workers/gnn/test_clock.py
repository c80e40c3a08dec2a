"""The clock of a rank: spans by name and kind, inner ones taken from the outer."""

from __future__ import annotations

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
