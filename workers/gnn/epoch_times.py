"""How long epochs take, and what is said in them with and without computing meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.network import Network
from penstock.workers.gnn.spec import Training

# Epochs that exchange by messages without computing meanwhile, to see what that alone takes.
_ALONE = range(2, 5)
_DRAWN = 8  # of the last epochs, in a profile


class Times:
    """Times of epochs, and of what is exchanged in them with and without computing meanwhile."""

    def __init__(self, training: Training, comm: Any) -> None:
        self._comm = comm if comm is not None and comm.size > 1 else None
        self.measures = self._comm is not None and training.overlap
        self._epochs: list[tuple[bool, float, Mapping[Any, float]]] = []

    def before(self, number: int, network: Network) -> None:
        """Exchange alone, by messages, in a few epochs, to see what that takes."""
        if self.measures:
            usual = number not in _ALONE
            network.halo.overlap = network.halo.sharing = network.sums.overlap = usual

    def after(self, number: int, seconds: float, kinds: Mapping[Any, float]) -> None:
        """Remember an epoch; the first compiles and folds, and is left out."""
        if number:
            self._epochs.append((self.measures and number in _ALONE, seconds, kinds))

    def epoch_seconds(self) -> float:
        """Return the median epoch."""
        return median([s for alone, s, _ in self._epochs if not alone] or [0.0])

    def shares(self) -> dict[str, float]:
        """Return the median seconds of each kind, the mean over ranks; every rank calls it."""
        usual = [kinds for alone, _, kinds in self._epochs if not alone]
        names = ("compute", "halo", "gradient", "other")
        values = [median([kinds.get(n, 0.0) for kinds in usual] or [0.0]) for n in names]
        alone = [kinds for is_alone, _, kinds in self._epochs if is_alone]
        for name in ("halo", "gradient"):
            values.append(median([kinds.get(name, 0.0) for kinds in alone] or [0.0]))
        slowest = np.array([values[0]])
        total = np.array(values)
        if self._comm is not None:
            self._comm.allreduce(total)
            self._comm.allreduce(slowest, "max")
            total /= self._comm.size
        keys = (*names, "halo_alone", "gradient_alone")
        found = {key: float(value) for key, value in zip(keys, total, strict=True)}
        found["imbalance"] = float(slowest[0] / total[0]) if total[0] else 1.0
        return found


def write_profile(path: Path, comm: Any, clock: Clock, times: Times, epochs: int) -> None:
    """Write what every rank did by name, and when, in the last epochs and those alone."""
    alone = list(_ALONE) if times.measures else []
    kept = {*alone, *range(epochs - _DRAWN, epochs)}
    rows = [row for row in clock.timeline() if row[0] in kept]
    mine = {"kinds": clock.totals(), "timeline": rows}
    ranks = [mine] if comm is None else comm.allgather(mine)
    if comm is None or comm.rank == 0:
        text = json.dumps({"ranks": ranks, "alone": alone})
        path.write_text(text, encoding="utf-8")
