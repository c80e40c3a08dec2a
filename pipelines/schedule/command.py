"""``penstock schedule``: flows by cron expression, on APScheduler, or for your own scheduler."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from penstock.errors import OutputExists, PenstockError, UsageError
from penstock.options import ClientPath
from penstock.paths import shown
from penstock.pipelines.display import Display
from penstock.pipelines.flow.records import State
from penstock.pipelines.schedule import emit
from penstock.pipelines.schedule.entry import changes, entry_of, given_of, stored
from penstock.pipelines.schedule.options import EmitOptions, ScheduleOptions, StateOptions

app = App(name="schedule")

Flow = Annotated[ClientPath, Parameter(help="a YAML file of stages")]


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
    more: EmitOptions = EmitOptions(),
) -> None:
    """Print a flow's schedule as another scheduler's entry."""
    if emit_for is None:
        raise UsageError(
            "penstock schedule needs a command, or --emit",
            expected="--emit systemd, cron, k8s or airflow, to print the entry of that scheduler",
            remedy=f"To have Penstock run the flow: penstock schedule add {shown(flow)}",
        )
    entry = entry_of(flow, options)
    text = {
        "systemd": lambda: emit.systemd(entry),
        "cron": lambda: emit.crontab(entry),
        "k8s": lambda: emit.kubernetes(entry, more.image),
        "airflow": lambda: emit.airflow(entry),
    }[emit_for]()
    print(text, end="")


@app.command(name="add", sort_key=1)
def add(
    flow: Flow,
    /,
    *,
    options: ScheduleOptions = ScheduleOptions(),
    state: StateOptions = StateOptions(),
    replaced: Annotated[
        bool, Parameter(name="--replace", negative="", help="replace the schedule of this name")
    ] = False,
    output: Display = Display(),
) -> None:
    """Add a flow to the schedules, which penstock schedule serve runs."""
    from penstock.pipelines.schedule.serve import run_scheduled
    from penstock.pipelines.schedule.store import schedules, state_file

    entry = entry_of(flow, options)
    path = state_file(state.state)
    with schedules(path) as scheduler:
        if scheduler.get_job(entry.name) is not None and not replaced:
            raise OutputExists(
                f"the schedule {entry.name!r} exists already",
                remedy="Give --replace, or another --name",
            )
        job = scheduler.add_job(
            run_scheduled, **stored(path, entry), kwargs={"given": given_of(options)},
            id=entry.name, replace_existing=replaced, coalesce=True, max_instances=1,
            misfire_grace_time=None,
        )  # fmt: skip
        _show([_line(job, None)], output)


@app.command(name="list", sort_key=2)
def listed(*, state: StateOptions = StateOptions(), output: Display = Display()) -> None:
    """List schedules: when each runs next, and how its last run ended."""
    from penstock.pipelines.schedule.store import runs_of, schedules, state_file

    path = state_file(state.state)
    with schedules(path) as scheduler:
        lines = []
        for job in scheduler.get_jobs():
            last = runs_of(path, job.id, last=1)
            lines.append(_line(job, last[0] if last else None))
    if not lines and not output.json:
        print("no schedules", file=sys.stderr)
    _show(lines, output)


@app.command(name="remove", sort_key=3)
def remove(
    name: Annotated[str, Parameter(help="name of a schedule")],
    /,
    *,
    state: StateOptions = StateOptions(),
    output: Display = Display(),
) -> None:
    """Remove a schedule; its active run continues."""
    from apscheduler.jobstores.base import JobLookupError

    from penstock.pipelines.schedule.store import schedules, state_file

    with schedules(state_file(state.state)) as scheduler:
        try:
            scheduler.remove_job(name)  # one that cannot be read too
        except JobLookupError:
            known = [job.id for job in scheduler.get_jobs()]
            raise UsageError(
                f"unknown schedule {name!r}",
                expected=f"one of {', '.join(known)}" if known else "none: there are no schedules",
            ) from None
    if output.json:
        print(json.dumps({"removed": name}, indent=1))
    elif not output.quiet:
        print(f"removed {name}")


@app.command(name="serve", sort_key=4)
def serve_command(*, state: StateOptions = StateOptions()) -> None:
    """Run what is due, until Ctrl-C or SIGTERM; it listens on no port."""
    from penstock.pipelines.schedule.serve import serve
    from penstock.pipelines.schedule.store import check_state, state_file

    path = state_file(state.state)
    check_state(path)
    serve(path)


def _line(job: Any, last: Any) -> dict[str, Any]:
    from penstock.pipelines.schedule.serve import is_alive

    problem, changed = None, {}
    try:
        changed = changes(job)  # which penstock schedule serve takes over
    except (PenstockError, OSError) as error:
        problem = str(error)
    flow, cron, zone = changed.get("name", job.name).rsplit(" | ", 2)
    following = changed.get("next_run_time", job.next_run_time)
    following = following or job.trigger.get_next_fire_time(None, dt.datetime.now(dt.UTC))
    body = {"name": job.id, "flow": flow, "cron": cron, "timezone": zone or None,
            "next": following.isoformat() if following else None, "last": None,
            "problem": problem}  # fmt: skip
    if last is not None:
        state: str = State.PASSED if last.code == 0 else State.FAILED
        if last.code is None:
            state = State.RUNNING if last.ended is None and is_alive(last) else "cut off"
        body["last"] = {"began": last.began, "state": state, "attempt": last.attempt + 1}
    return body


def _show(lines: list[dict[str, Any]], output: Display) -> None:
    if output.json:
        print(json.dumps(lines, indent=1))
        return
    if output.quiet:
        return
    for one in lines:
        last = f"; last {one['last']['state']} {one['last']['began']}" if one["last"] else ""
        print(f"{one['name']}  {one['cron']}  next {one['next']}{last}  {one['flow']}")
        if one["problem"]:
            print(f"  problem: {one['problem']}")
