"""A trigger of APScheduler for the time on the wall clock, also if clocks go forward or back.

APScheduler's own fires twice at 2:30 in the night in which there are two, and leaves a day out
if midnight is skipped. As with cron, a run at a given time is due once every day.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from apscheduler.triggers.base import BaseTrigger

_LONGEST_GAP = dt.timedelta(hours=25)  # a zone has once changed its side of the date line
_TICK = dt.timedelta(microseconds=1)


class WallTime(BaseTrigger):  # type: ignore[misc]
    """Fires when a clock on the wall shows what ``inner``, a trigger in UTC, names.

    A skipped time comes later by the skipped amount; of a repeated time, the first counts.
    """

    def __init__(self, inner: Any, zone: dt.tzinfo) -> None:
        self.inner, self.zone = inner, zone

    def get_next_fire_time(
        self, previous_fire_time: dt.datetime | None, now: dt.datetime
    ) -> dt.datetime | None:
        """Return the first time after the previous one, or from now on."""
        begin = now if previous_fire_time is None else previous_fire_time + _TICK
        wall = begin.astimezone(self.zone).replace(tzinfo=dt.UTC, fold=0) - _LONGEST_GAP
        while (shown := self.inner.get_next_fire_time(None, wall)) is not None:
            moment: dt.datetime = shown.replace(tzinfo=self.zone, fold=0).astimezone(dt.UTC)
            if moment >= begin:
                return moment.astimezone(self.zone)
            wall = shown + _TICK
        return None
