"""``penstock schedule``: flows by cron expression, or for your own scheduler."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from penstock.errors import OutputExists, PenstockError, UsageError
from penstock.options import ClientPath
from penstock.paths import shown
from penstock.pipelines.display import Display
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.options import settings
from penstock.pipelines.schedule import emit
from penstock.pipelines.schedule.entry import Entry, Schedules, entry_of
from penstock.pipelines.schedule.options import ScheduleOptions

app = App(name="schedule")

Flow = Annotated[ClientPath, Parameter(help="a YAML file of stages")]
State = Annotated[
    ClientPath | None,
    Parameter(help="the folder of schedules [default: in the user's state folder]"),
]


@app.default
def emitted(
    flow: Flow,
    /,
    *,
    emit_for: Annotated[
        Literal["systemd", "cron", "k8s", "airflow"] | None,
        Parameter(
            name="--emit", help="print the entry for this scheduler; add: run it by Penstock"
        ),
    ] = None,
    options: ScheduleOptions = ScheduleOptions(),
    image: Annotated[str, Parameter(help="k8s: the container image")] = "penstock:latest",
) -> None:
    """Print a flow's schedule as another scheduler's entry."""
    if emit_for is None:
        raise UsageError(
            "penstock schedule needs a command, or --emit",
            expected="--emit systemd, cron, k8s or airflow, to print the entry of that scheduler",
            remedy=f"To have Penstock run the flow: penstock schedule add {shown(flow)}",
        )
    entry = _read(flow, options)
    text = {
        "systemd": lambda: emit.systemd(entry),
        "cron": lambda: emit.crontab(entry),
        "k8s": lambda: emit.kubernetes(entry, image),
        "airflow": lambda: emit.airflow(entry),
    }[emit_for]()
    print(text, end="")


@app.command(name="add", sort_key=1)
def add(
    flow: Flow,
    /,
    *,
    options: ScheduleOptions = ScheduleOptions(),
    state: State = None,
    replaced: Annotated[
        bool, Parameter(name="--replace", negative="", help="replace the schedule of this name")
    ] = False,
    output: Display = Display(),
) -> None:
    """Add a flow to the schedules, which penstock schedule serve runs."""
    entry, schedules = _read(flow, options), Schedules(state)
    if entry.name in schedules.names() and not replaced:
        raise OutputExists(
            f"the schedule {entry.name!r} exists already",
            remedy="Give --replace, or another --name",
        )
    schedules.save(entry)
    _show([_line(entry.name, entry)], output)


@app.command(name="list", sort_key=2)
def listed(*, state: State = None, output: Display = Display()) -> None:
    """List schedules: when each runs next, and how its last run ended."""
    lines = [_line(name, entry) for name, entry in Schedules(state).entries()]
    if not lines and not output.json:
        print("no schedules", file=sys.stderr)
    _show(lines, output)


@app.command(name="remove", sort_key=3)
def remove(
    name: Annotated[str, Parameter(help="name of a schedule")],
    /,
    *,
    state: State = None,
    output: Display = Display(),
) -> None:
    """Remove a schedule; its active run continues."""
    schedules = Schedules(state)
    if not schedules.remove(name):
        known = ", ".join(schedules.names())
        raise UsageError(
            f"unknown schedule {name!r}",
            expected=f"one of {known}" if known else "none: there are no schedules",
        )
    output.say({"removed": name}, f"removed {name}")


@app.command(name="serve", sort_key=4)
def serve_command(*, state: State = None) -> None:
    """Run what is due, until Ctrl-C or SIGTERM; it listens on no port."""
    from penstock.pipelines.schedule.serve import serve

    serve(Schedules(state))


def _read(flow: ClientPath, options: ScheduleOptions) -> Entry:
    """Return what is to be run and when; the whole flow is checked."""
    read = read_flow(flow, settings(options.set))
    now = dt.datetime.now(dt.UTC)
    series = (read.name, read.series)
    return entry_of(flow, read.keys.schedule, options, options.name or read.name, series, now)


def _line(name: str, entry: Entry | PenstockError) -> dict[str, Any]:
    if isinstance(entry, PenstockError):
        unknown = dict.fromkeys(("flow", "cron", "timezone", "next", "last"))
        return {"name": name, **unknown, "problem": str(entry)}
    last = next(reversed(entry.runs()), None)
    return {
        "name": name,
        "flow": str(entry.flow),
        "cron": entry.cron.text,
        "timezone": entry.zone,
        "next": entry.following(dt.datetime.now(dt.UTC)).isoformat(),
        "last": last
        and {
            "run": last.name,
            "date": last.date,
            "state": last.state,
            "attempt": last.body.get("attempt"),
        },
        "problem": entry.problem,
    }


def _show(lines: list[dict[str, Any]], output: Display) -> None:
    texts = []
    for one in lines:
        last = f"; last {one['last']['state']} {one['last']['date']}" if one["last"] else ""
        texts.append(f"{one['name']}  {one['cron']}  next {one['next']}{last}  {one['flow']}")
        texts += [f"  problem: {one['problem']}"] if one["problem"] else []
    output.say(lines, "\n".join(texts))
