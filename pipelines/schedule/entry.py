"""What is to be run, and when: by the options of ``penstock schedule``, else by the flow's file.

A stored schedule keeps the options that were given when it was added. All else is the flow's, and
changes with it: ``changes`` returns how a stored schedule differs from its flow.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.pipelines.flow.command import settings
from penstock.pipelines.flow.document import read_flow, read_schedule
from penstock.pipelines.schedule.cron import parse_cron
from penstock.pipelines.schedule.emit import Entry
from penstock.pipelines.schedule.options import ScheduleOptions

_TIMING = ("cron", "timezone", "retries", "backoff")


def entry_of(flow: Path, options: ScheduleOptions) -> Entry:
    """Return what is to be run and when; the whole flow is checked."""
    read = read_flow(flow, settings(options.set))
    return _entry(flow, read.name, read.schedule, options)


def _entry(flow: Path, name: str, own: Mapping[str, Any], options: ScheduleOptions) -> Entry:
    given = {key: getattr(options, key) for key in (*_TIMING, "name")}
    found = replace(
        ScheduleOptions(**own), **{key: one for key, one in given.items() if one is not None}
    )
    if found.cron is None:
        raise UsageError(
            f"{flow} has no schedule", expected='--cron "30 2 * * *", or in the flow '
            'schedule: {cron: "30 2 * * *"}',
        )  # fmt: skip
    name = found.name or name
    if re.fullmatch(r"[\w.-]+", name, re.ASCII) is None:  # it is part of names of files and units
        raise UsageError("option --name has a bad value", expected="letters, digits, -, _ and .",
                         got=repr(name))  # fmt: skip
    return Entry(
        name=name, flow=flow, cron=parse_cron(found.cron),
        zone=found.timezone, settings=options.set, retries=found.retries or 0,
        backoff=60.0 if found.backoff is None else found.backoff,
    )  # fmt: skip


def stored(state: Path, entry: Entry) -> dict[str, Any]:
    """Return an entry as APScheduler keeps it: the arguments of ``run_scheduled``, and when."""
    return {
        "args": (str(state), entry.name, str(entry.flow), list(entry.settings), entry.retries,
                 entry.backoff),
        "name": f"{entry.flow} | {entry.cron.text} | {entry.zone or ''}",
        "trigger": entry.cron.trigger(entry.zone),
    }  # fmt: skip


def given_of(options: ScheduleOptions) -> dict[str, Any]:
    """Return the given options: they take precedence over the flow."""
    given = {key: getattr(options, key) for key in _TIMING}
    return {key: one for key, one in given.items() if one is not None}


def flow_of(job: Any) -> Path:
    """Return the flow of a stored schedule."""
    return Path(job.args[2])


def changes(job: Any) -> dict[str, Any]:
    """Return the changes to a stored schedule, because its flow has changed.

    What is due already stays due.
    """
    given = job.kwargs.get("given")
    if given is None:  # not known which options were given to the version that added it
        return {}
    state, name, flow, own = Path(job.args[0]), job.id, flow_of(job), tuple(job.args[3])
    options = ScheduleOptions(**given, name=name, set=own)
    made = stored(state, _entry(flow, name, read_schedule(flow), options))
    if made["name"] == job.name and made["args"] == tuple(job.args):
        return {}
    if made["name"] == job.name:  # at the same times
        del made["trigger"]
        return made
    now = dt.datetime.now(dt.UTC)
    if job.next_run_time is None or job.next_run_time > now:
        made["next_run_time"] = made["trigger"].get_next_fire_time(None, now)
    return made
