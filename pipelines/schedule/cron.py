"""Cron expressions, in cron's own meaning: when they are due, and systemd's calendar of them."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import UsageError

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
_LONGEST_GAP = dt.timedelta(2)  # a zone has once changed its side of the date line
_TICK, _DAY = dt.timedelta(microseconds=1), dt.timedelta(1)


@dataclass(frozen=True)
class Cron:
    """A cron expression: the values that each of its five fields allows, ascending."""

    text: str
    values: tuple[tuple[int, ...], ...]
    any: tuple[bool, ...]  # which fields begin with *

    @property
    def either_day(self) -> bool:
        """Whether the day of the month or that of the week will do."""
        return not self.any[2] and not self.any[4]

    def times(self, zone: str | None, since: dt.datetime) -> Iterator[dt.datetime]:
        """Yield when it is due from a moment on, without end, in the time of a zone.

        A time that clocks skip comes later by the skipped amount. Of a time that they show twice
        the first counts; but every hour or every few minutes continues through both, as with cron.
        """
        where, often = zone_of(zone), self.any[0] or self.any[1]
        last = since.astimezone(dt.UTC) - _TICK
        day = since.astimezone(where).date() - _LONGEST_GAP
        both = itertools.product(*self.values[1::-1], (0, 1) if often else (0,))
        clock = [dt.time(hour, minute, fold=fold) for hour, minute, fold in both]
        while True:
            shown = [dt.datetime.combine(day, one, where) for one in clock if self._on(day)]
            pairs = [(one.astimezone(dt.UTC), one) for one in shown]
            real = {at for at, one in pairs if not often or at.astimezone(where) == one}
            for moment in sorted(real):
                if moment > last:
                    last = moment
                    yield moment.astimezone(where)
            day += _DAY

    def _on(self, day: dt.date) -> bool:
        by_date, by_week = day.day in self.values[2], day.isoweekday() % 7 in self.values[4]
        either = by_date or by_week if self.either_day else by_date and by_week
        return day.month in self.values[3] and either

    @property
    def numbers(self) -> str:
        """It in numbers alone, with Sunday as 0."""
        return " ".join(map(self._listed, range(5)))

    def calendar(self, zone: str | None) -> tuple[str, ...]:
        """Return it as lines of systemd's ``OnCalendar=``; one must match."""

        def listed(position: int) -> str:
            if self._whole(position):
                return "*"
            return ",".join(f"{one:02d}" for one in self.values[position])

        days = ",".join(_DAYS[one].capitalize() for one in self.values[4])
        time = f"{listed(1)}:{listed(0)}:00" + (f" {zone}" if zone else "")
        by_date = f"*-{listed(3)}-{listed(2)} {time}"
        if self.any[4] and self._whole(4):
            return (by_date,)
        by_week = f"{days} *-{listed(3)}-* {time}"
        if self.either_day:
            return (by_date, by_week)
        return (f"{days} {by_date}",)

    def _listed(self, position: int) -> str:
        if self.any[position] and self._whole(position):
            return "*"
        return ",".join(map(str, self.values[position]))

    def _whole(self, position: int) -> bool:
        low, high = _FIELDS[position][1:]
        return len(self.values[position]) == (7 if position == 4 else high - low + 1)


def parse_cron(text: str) -> Cron:
    """Return a cron expression; the error names the wrong field."""
    words = _SHORT.get(text.strip().lower(), text).split()
    if len(words) != len(_FIELDS):
        raise UsageError(
            f"{text!r} is not a cron expression",
            expected='minute, hour, day of the month, month, day of the week: "30 4 * * *"; or '
            f"{', '.join(_SHORT)}",
        )
    values = tuple(_field(word, position, text) for position, word in enumerate(words))
    cron = Cron(" ".join(words), values, tuple(word.startswith("*") for word in words))
    _check_date(cron, text)
    return cron


def _check_date(cron: Cron, text: str) -> None:
    """Refuse a date that never occurs, such as the 30th of February."""
    if not cron.either_day:
        longest = {2: 29, **dict.fromkeys((4, 6, 9, 11), 30)}
        if all(min(cron.values[2]) > longest.get(month, 31) for month in cron.values[3]):
            raise UsageError(f"{text!r} names a date that never occurs")


def _field(word: str, position: int, text: str) -> tuple[int, ...]:
    name, low, high = _FIELDS[position]
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            if span == "*":
                begin, end = low, 6 if position == 4 else high
            else:
                begin = _number(first, position)
                end = _number(last, position) if dash else (high if slash else begin)
                if max(begin, end) > high:
                    raise ValueError(part)
                if position == 4 and dash and end < begin:
                    end += 7  # fri-mon
            stride = int(step) if slash else 1
        except ValueError:
            begin, end, stride = 1, 0, 0
        if not low <= begin <= end or stride < 1:
            raise UsageError(
                f"the {name} of the cron expression {text!r} is wrong",
                expected=f"numbers from {low} to {high}, such as 5, 1-5, */15 or 1,3",
                got=part,
            )
        found |= {one % 7 if position == 4 else one for one in range(begin, end + 1, stride)}
    return tuple(sorted(found))


def _number(word: str, position: int) -> int:
    names = {3: _MONTHS, 4: _DAYS}.get(position, ())
    if word.lower() in names:
        return names.index(word.lower()) + (position == 3)
    if not re.fullmatch(r"\d{1,2}", word):
        raise ValueError(word)
    return int(word)


def zone_of(name: str | None) -> Any:
    """Return a time zone by its name; None: this machine's."""
    if name is None:
        from tzlocal import get_localzone

        return get_localzone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"unknown time zone {name!r}", expected="a name such as Europe/Zurich or UTC"
        ) from error
