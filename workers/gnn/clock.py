"""Where the time of an epoch goes: spans by name and kind, and an optional timeline.

with clock.span("layer 1: gather", "compute"):
    with clock.span("halo: test", "halo"):        # subtracted from the outer span
        ...
clock.epoch_done()                                # {"compute": 0.8, "halo": 0.1, ...}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from penstock.files import save_text

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

Kind = Literal["compute", "halo", "gradient", "other"]
KINDS: tuple[Kind, ...] = ("compute", "halo", "gradient", "other")
_DRAWN = 8  # of the last epochs, in a profile


class Row(NamedTuple):
    """One span of the timeline: seconds since the clock started; own: without inner spans."""

    epoch: int
    name: str
    kind: Kind
    start: float
    end: float
    own: float


class Clock:
    """The time of one thread. Ranks that make theirs after a barrier share a timeline.

    settle  called before each reading of the time: waits for a GPU, if spans should include its
            work and not only the launches
    """

    def __init__(self, timeline: bool = False, settle: Callable[[], None] | None = None) -> None:
        self.settle = settle
        self.timeline: list[Row] | None = [] if timeline else None  # every span, by its end
        self._origin = perf_counter()
        self._epoch = 0
        self._open: list[_Span] = []
        self._kinds: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)

    def span(self, name: str, kind: Kind) -> _Span:
        """Return a context whose time counts for ``kind``, and in the timeline for ``name``."""
        return _Span(self, name, kind)

    def epoch_done(self) -> dict[Kind, float]:
        """Return the seconds of each kind since the last call, and start the next epoch."""
        done, self._kinds = self._kinds, dict.fromkeys(KINDS, 0.0)
        self._epoch += 1
        return done

    def _book(self, span: _Span, start: float, end: float, own: float) -> None:
        self._kinds[span.kind] += own
        if self.timeline is not None:
            times = start - self._origin, end - self._origin, own
            self.timeline.append(Row(self._epoch, span.name, span.kind, *times))


class _Span:
    __slots__ = ("_clock", "_inner", "_start", "kind", "name")

    def __init__(self, clock: Clock, name: str, kind: Kind) -> None:
        self._clock, self.name, self.kind = clock, name, kind
        self._start = self._inner = 0.0  # when it began; seconds of spans inside

    def __enter__(self) -> None:
        self._clock._open.append(self)
        if self._clock.settle is not None:
            self._clock.settle()
        self._start = perf_counter()

    def __exit__(self, *error: object) -> None:
        if self._clock.settle is not None:
            self._clock.settle()
        end, start = perf_counter(), self._start
        taken = end - start
        spans = self._clock._open
        spans.pop()
        if spans:
            spans[-1]._inner += taken
        self._clock._book(self, start, end, taken - self._inner)


class EpochTimes:
    """Times of epochs, by kind."""

    def __init__(self, comm: AnyCommunicator) -> None:
        self._comm = comm
        self._epochs: list[tuple[float, Mapping[Kind, float]]] = []
        self._begun = False

    def after(self, seconds: float, kinds: Mapping[Kind, float]) -> None:
        """Add an epoch; the first compiles and precomputes, and is left out."""
        if self._begun:
            self._epochs.append((seconds, kinds))
        self._begun = True

    def epoch_seconds(self) -> float:
        """Return the median epoch."""
        return median([seconds for seconds, _ in self._epochs] or [0.0])

    def kinds(self) -> dict[Kind, float]:
        """Return this rank's median seconds of each kind."""
        return {k: median([kinds[k] for _, kinds in self._epochs] or [0.0]) for k in KINDS}

    def shares(self) -> dict[str, float]:
        """Return the median seconds of each kind, the mean over ranks; every rank calls it."""
        total = np.array([*self.kinds().values()])
        slowest = total[:1].copy()
        self._comm.allreduce(total)
        self._comm.allreduce(slowest, "max")
        total /= self._comm.size
        found = {str(kind): float(value) for kind, value in zip(KINDS, total, strict=True)}
        found["imbalance"] = float(slowest[0] / total[0]) if total[0] else 1.0
        return found


def write_profile(
    path: Path, comm: AnyCommunicator, clock: Clock, times: EpochTimes, epochs: int
) -> None:
    """Write each rank's times by kind, and the timeline of the last epochs."""
    rows = [row for row in clock.timeline or () if row.epoch >= epochs - _DRAWN]
    ranks = comm.allgather({"kinds": times.kinds(), "timeline": rows})
    if comm.rank == 0:
        save_text(path, json.dumps({"ranks": ranks}))
