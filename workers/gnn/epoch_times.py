"""How long epochs take, and what is waited for in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from penstock.workers.gnn.clock import Clock

_DRAWN = 8  # of the last epochs, in a profile


class Times:
    """Times of epochs, by kind of what was done."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm if comm is not None and comm.size > 1 else None
        self._epochs: list[tuple[float, Mapping[Any, float]]] = []

    def after(self, number: int, seconds: float, kinds: Mapping[Any, float]) -> None:
        """Remember an epoch; the first compiles and folds, and is left out."""
        if number:
            self._epochs.append((seconds, kinds))

    def epoch_seconds(self) -> float:
        """Return the median epoch."""
        return median([seconds for seconds, _ in self._epochs] or [0.0])

    def shares(self) -> dict[str, float]:
        """Return the median seconds of each kind, the mean over ranks; every rank calls it."""
        names = ("compute", "halo", "gradient", "other")
        values = [median([kinds.get(n, 0.0) for _, kinds in self._epochs] or [0.0]) for n in names]
        slowest = np.array([values[0]])
        total = np.array(values)
        if self._comm is not None:
            self._comm.allreduce(total)
            self._comm.allreduce(slowest, "max")
            total /= self._comm.size
        found = {name: float(value) for name, value in zip(names, total, strict=True)}
        found["imbalance"] = float(slowest[0] / total[0]) if total[0] else 1.0
        return found


def write_profile(path: Path, comm: Any, clock: Clock, epochs: int) -> None:
    """Write what every rank did by name, and when, in the last epochs."""
    rows = [row for row in clock.timeline() if row[0] >= epochs - _DRAWN]
    mine = {"kinds": clock.totals(), "timeline": rows}
    ranks = [mine] if comm is None else comm.allgather(mine)
    if comm is None or comm.rank == 0:
        path.write_text(json.dumps({"ranks": ranks}), encoding="utf-8")
