"""What is to be run and when: one JSON file per schedule.

The file keeps the options that were given when it was added. All else is the flow's, and changes
with it. What ran is read from the records of runs beside the flow.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.documents import parse_json
from penstock.errors import PenstockError, UsageError
from penstock.files import save_json
from penstock.options import given_options
from penstock.output_lock import own_directory
from penstock.pipelines.flow.document import read_schedule
from penstock.pipelines.flow.records import FOLDER, RunRecord, State, all_runs, began
from penstock.pipelines.schedule.cron import Cron, parse_cron, zone_of
from penstock.pipelines.schedule.options import ScheduleOptions, ScheduleTimes

CATCH_UP = 7
_LONGEST = dt.timedelta(days=366)  # before now, for what is due
_TICK = dt.timedelta(seconds=1)


@dataclass(frozen=True)
class Entry:
    """One schedule: the given options, those of its flow, and what follows from them."""

    name: str
    flow: Path
    given: ScheduleOptions
    options: ScheduleOptions
    added: dt.datetime

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

    def words(self, *more: str) -> list[str]:
        """Return what follows ``penstock`` on the command line of a run."""
        found = ["run", str(self.flow), "--scheduled", self.name, *more]
        for one in self.given.set:
            found += ["--set", one]
        return found

    def following(self, after: dt.datetime) -> dt.datetime | None:
        """Return when it fires next."""
        found: dt.datetime | None = self.cron.trigger(self.zone).get_next_fire_time(None, after)
        return found

    def runs(self) -> list[RunRecord]:
        """Return the runs of this schedule, the oldest first."""
        return [run for run in all_runs(self.flow.parent / FOLDER)
                if run.body.get("scheduled") == self.name]  # fmt: skip

    def due(self, now: dt.datetime) -> list[dt.date]:
        """Return the days that are to be run: missed ones as themselves, the oldest first.

        A day that was cut off is due again; one that has passed since it was due is not.
        """
        zone, since = zone_of(self.zone), self.added
        last = max(self.runs(), key=lambda run: (run.date, began(run)), default=None)
        found: dict[dt.date, dt.datetime] = {}
        if last is not None:
            day = dt.date.fromisoformat(last.date)
            start = dt.datetime.fromtimestamp(began(last), dt.UTC)
            if last.state in (State.KILLED, State.INTERRUPTED):
                found[day] = start
            # A day may have several runs: those that were due before the last one are done.
            midnight = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), zone)
            since = max(since, min(start, midnight.astimezone(dt.UTC) - _TICK))
        moment = self.following(max(since, now - _LONGEST) + _TICK)
        while moment is not None and moment <= now:
            found[moment.astimezone(zone).date()] = moment
            # In a zone, a second after the second of two equal times is after the first.
            moment = self.following(moment.astimezone(dt.UTC) + _TICK)
        passed = {(run.date, began(run)) for run in all_runs(self.flow.parent / FOLDER)
                  if run.state == State.PASSED and _same_flow(run, self.flow)}  # fmt: skip
        days = [day for day, fired in sorted(found.items())
                if not any(date == day.isoformat() and start >= fired.timestamp()
                           for date, start in passed)]  # fmt: skip
        most = CATCH_UP if self.options.catch_up is None else self.options.catch_up
        return days[-most:]

    def late(self, now: dt.datetime) -> dt.date | None:
        """Return the day whose run should have passed by now; None: none is late."""
        if self.options.late_after is None:
            return None
        zone = zone_of(self.zone)
        today = now.astimezone(zone).date()
        midnight, limit = (
            dt.datetime.combine(today, time, zone).astimezone(dt.UTC)
            for time in (dt.time(), dt.time.fromisoformat(self.options.late_after))
        )
        fires = self.following(max(midnight, self.added))
        if now < limit or fires is None or fires > limit:
            return None
        runs = all_runs(self.flow.parent / FOLDER)
        passed = any(run.state == State.PASSED and run.date == today.isoformat()
                     and _same_flow(run, self.flow) for run in runs)  # fmt: skip
        return None if passed else today


def entry_of(
    flow: Path, own: ScheduleTimes, given: ScheduleOptions, name: str, added: dt.datetime
) -> Entry:
    """Return a schedule; ``own`` are the flow's options."""
    options = replace(ScheduleOptions(**asdict(own)), **given_options(given))
    if options.cron is None:
        raise UsageError(
            f"{flow} has no schedule",
            expected='--cron "30 4 * * *", or in the flow schedule: {cron: "30 4 * * *"}',
        )
    if re.fullmatch(r"[\w.-]+", name, re.ASCII) is None:  # it is part of names of files and units
        raise UsageError("option --name has a bad value", expected="letters, digits, -, _ and .",
                         got=repr(name))  # fmt: skip
    return Entry(name, flow, given, options, added)


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
        body = {"flow": str(entry.flow), "options": given_options(entry.given),
                "added": entry.added.isoformat()}  # fmt: skip
        save_json(self.path(entry.name), body)

    def load(self, name: str) -> Entry:
        """Return a schedule, with the options that its flow has now."""
        try:
            body = parse_json(self.path(name).read_bytes())
            flow, added = Path(body["flow"]), dt.datetime.fromisoformat(body["added"])
            options = body["options"]
            given = ScheduleOptions(**{**options, "set": tuple(options.get("set", ()))})
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(
                f"{self.path(name)} cannot be read",
                got=str(error),
                remedy="Remove the schedule, and add it again",
            ) from error
        return entry_of(flow, read_schedule(flow), given, name, added)

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


def _same_flow(run: RunRecord, flow: Path) -> bool:
    return os.path.realpath(str(run.body.get("file"))) == os.path.realpath(flow)
