"""What is to be run and when: one JSON file per schedule.

The file keeps the options that were given when it was added, and what the flow's file said when it
could last be read. What ran is read from the records of runs beside the flow.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, UsageError
from penstock.files import save_json
from penstock.options import given_options
from penstock.output_lock import own_directory
from penstock.pipelines.flow.document import read_schedule
from penstock.pipelines.flow.options import settings
from penstock.pipelines.flow.records import FOLDER, RunRecord, State, all_runs, began, by_date
from penstock.pipelines.schedule.cron import Cron, parse_cron, zone_of
from penstock.pipelines.schedule.options import (
    ScheduleOptions,
    ScheduleTimes,
    seconds_before_retry,
)

CATCH_UP = 7
_LONGEST = dt.timedelta(days=366)  # before now, for what is due
_TICK, _DAY = dt.timedelta(seconds=1), dt.timedelta(days=1)


@dataclass(frozen=True)
class Entry:
    """One schedule: the given options, those of its flow, and what follows from them.

    series    of its runs
    problem   why the flow's file cannot be read now; all else is as it last was
    reported  the last day that was reported as late
    """

    name: str
    flow: Path
    given: ScheduleOptions
    options: ScheduleOptions
    series: tuple[str, str | None]
    added: dt.datetime
    problem: str | None = None
    reported: str | None = field(default=None, compare=False)

    @property
    def cron(self) -> Cron:
        """When it runs."""
        assert self.options.cron is not None
        return parse_cron(self.options.cron)

    @property
    def zone(self) -> str | None:
        """The time zone of its expression and dates."""
        return self.options.timezone

    @property
    def retries(self) -> int:
        """How often a run that failed is tried again."""
        return self.options.retries or 0

    @property
    def backoff(self) -> float:
        """Seconds before the first retry."""
        return 60.0 if self.options.backoff is None else self.options.backoff

    @property
    def settings(self) -> dict[str, str]:
        """The variables that were given to it."""
        return settings(self.given.set)

    def words(self, *more: str) -> list[str]:
        """Return what follows ``penstock`` on the command line of a run."""
        found = ["run", str(self.flow), "--scheduled", self.name, *more]
        for one in self.given.set:
            found += ["--set", one]
        return found

    def following(self, after: dt.datetime) -> dt.datetime:
        """Return when it is due next."""
        return next(self.cron.times(self.zone, after))

    def runs(self) -> list[RunRecord]:
        """Return the runs of this schedule, the oldest first."""
        return [
            run
            for run in all_runs(self.flow.parent / FOLDER)
            if run.body.get("scheduled") == self.name
        ]

    def due(self, now: dt.datetime) -> list[dt.date]:
        """Return the days that are to be run: missed ones as themselves, the oldest first.

        A day that was cut off, or has attempts left, is due again; one that has passed since it was
        due is not.
        """
        zone, since = zone_of(self.zone), self.added
        last = self.last()
        found: dict[dt.date, dt.datetime] = {}
        if last is not None:
            day = dt.date.fromisoformat(last.date)
            start = dt.datetime.fromtimestamp(began(last), dt.UTC)
            if last.state in (State.KILLED, State.INTERRUPTED) or attempts_left(last):
                found[day] = start
            # A day may have several runs: those that were due before the last one are done.
            midnight = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), zone)
            since = max(since, min(start, midnight.astimezone(dt.UTC) - _TICK))
        for moment in self.cron.times(self.zone, max(since, now - _LONGEST) + _TICK):
            if moment > now:
                break
            found[moment.date()] = moment
        passed = {(run.date, began(run)) for run in self._passed()}
        days = [
            day
            for day, fired in sorted(found.items())
            if not any(
                date == day.isoformat() and start >= fired.timestamp() for date, start in passed
            )
        ]
        most = CATCH_UP if self.options.catch_up is None else self.options.catch_up
        return days[-most:]

    def attempt(self, day: dt.date) -> tuple[int, int]:
        """Return which of how many attempts the next run of a day that is due is."""
        last = self.last()
        if last is not None and last.date == day.isoformat():
            number, count = last.attempt
            if attempts_left(last):
                return number + 1, count
            if last.state in (State.KILLED, State.INTERRUPTED):
                return number, count
        return 1, self.retries + 1

    def wait(self, day: dt.date) -> float:
        """Return the seconds before the next run of a day, if it is a retry."""
        last = self.last()
        if last is None or last.date != day.isoformat() or not attempts_left(last):
            return 0.0
        backoff = seconds_before_retry(last.attempt[0] - 1, self.backoff)
        return min(max(began(last) + (last.seconds or 0.0) + backoff - time.time(), 0.0), backoff)

    def last(self) -> RunRecord | None:
        """Return the last of its runs by date; None: there is none."""
        return next(reversed(by_date(self.runs())), None)

    def late(self, now: dt.datetime) -> dt.date | None:
        """Return the day whose run should have passed by now; None: none is late.

        A run may be due in the evening, and late in the morning after.
        """
        if self.options.late_after is None:
            return None
        zone, until = zone_of(self.zone), dt.time.fromisoformat(self.options.late_after)
        today = now.astimezone(zone).date()
        for day in (today, today - _DAY):
            midnight, limit, next_limit = (
                dt.datetime.combine(date, time, zone).astimezone(dt.UTC)
                for date, time in ((day, dt.time()), (day, until), (day + _DAY, until))
            )
            fires = self.following(max(midnight, self.added))
            if fires.date() != day:
                continue
            if now >= (limit if limit > fires else next_limit):
                passed = any(run.date == day.isoformat() for run in self._passed())
                return None if passed else day
        return None

    def _passed(self) -> list[RunRecord]:
        """Return the runs that count as this schedule's and have passed, whoever started them."""
        given = self.settings.items()
        return [
            run
            for run in all_runs(self.flow.parent / FOLDER, self.series[0])
            if run.state == State.PASSED
            and run.whole
            and run.series == self.series
            and all(run.variables.get(name, value) == value for name, value in given)
        ]


def attempts_left(run: RunRecord) -> int:
    """Return how often a scheduled run that failed is to be tried again."""
    if run.state != State.FAILED or run.body.get("final"):
        return 0
    number, count = run.attempt
    return max(count - number, 0)


def entry_of(
    flow: Path,
    own: ScheduleTimes,
    given: ScheduleOptions,
    name: str,
    series: tuple[str, str | None],
    added: dt.datetime,
) -> Entry:
    """Return a schedule; ``own`` are the flow's options."""
    options = replace(ScheduleOptions(**asdict(own)), **given_options(given))
    if options.cron is None:
        raise UsageError(
            f"{flow} has no schedule",
            expected='--cron "30 4 * * *", or in the flow schedule: {cron: "30 4 * * *"}',
        )
    if re.fullmatch(r"[\w.-]+", name, re.ASCII) is None:  # it is part of names of files and units
        raise UsageError(
            "option --name has a bad value", expected="letters, digits, -, _ and .", got=repr(name)
        )
    return Entry(name, flow, given, options, series, added)


class Schedules:
    """A folder of schedules, which only this user can change: what it names is executed."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            from penstock.cluster.daemon.registry import state_home

            folder = state_home() / "schedules"
        self.folder = folder
        if folder.exists():
            found = folder.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PenstockError(
                    f"other users may write to {folder}",
                    expected="a folder of this user, who alone may write to it",
                    remedy="Name another folder: --state",
                )

    def names(self) -> list[str]:
        """Return the names of all schedules."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def save(self, entry: Entry) -> None:
        """Keep a schedule."""
        own_directory(self.folder)
        read = {"options": given_options(entry.options), "series": entry.series}
        body = {
            "flow": str(entry.flow),
            "options": given_options(entry.given),
            "read": read,
            "added": entry.added.isoformat(),
            "reported": entry.reported,
        }
        save_json(self.path(entry.name), body)

    def load(self, name: str) -> Entry:
        """Return a schedule, with the options that its flow has now, or had last."""
        try:
            body = json.loads(self.path(name).read_bytes())
            flow, added = Path(body["flow"]), dt.datetime.fromisoformat(body["added"])
            given, last = _options(body["options"]), _options(body["read"]["options"])
            flow_name, folder = body["read"]["series"]
            entry = Entry(
                name, flow, given, last, (flow_name, folder), added, None, body["reported"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(
                f"{self.path(name)} cannot be read",
                got=str(error),
                remedy="Remove the schedule, and add it again",
            ) from error
        try:
            own, series = read_schedule(flow, entry.settings)
            read = entry_of(flow, own, given, name, series, added)
        except (PenstockError, OSError) as error:
            return replace(entry, problem=str(error))
        read = replace(read, reported=entry.reported)
        if read != entry:
            self.save(read)
        return read

    def remove(self, name: str) -> bool:
        """Forget a schedule; return whether there was one."""
        exists = self.path(name).exists()
        self.path(name).unlink(missing_ok=True)
        return exists

    def path(self, name: str) -> Path:
        """Return the file of a schedule."""
        return self.folder / f"{name}.json"

    def entries(self) -> Iterator[tuple[str, Entry | PenstockError]]:
        """Yield every schedule, or why it cannot be read."""
        for name in self.names():
            try:
                yield name, self.load(name)
            except (PenstockError, OSError) as error:
                known = error if isinstance(error, PenstockError) else PenstockError(str(error))
                yield name, known


def _options(body: dict[str, Any]) -> ScheduleOptions:
    return ScheduleOptions(**{**body, "set": tuple(body.get("set", ()))})
