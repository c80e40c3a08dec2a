"""``penstock run`` and ``penstock schema`` on the command line."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from itertools import pairwise
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import PenstockError, UsageError
from penstock.files import save_text
from penstock.options import ClientPath
from penstock.paths import client_path
from penstock.pipelines.display import Display
from penstock.pipelines.flow.document import Flow, read_flow
from penstock.pipelines.flow.notify import leave_record
from penstock.pipelines.flow.options import RunOptions, settings
from penstock.pipelines.flow.planning import plan_flow
from penstock.pipelines.flow.records import FOLDER, all_runs, began
from penstock.pipelines.flow.run import FlowRun
from penstock.pipelines.job.plan import PlanFlag


def command(
    flow: ClientPath,
    /,
    *,
    options: RunOptions = RunOptions(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Run a flow: its stages that must run, side by side if they can; gates; publishing.

    Parameters
    ----------
    flow
        a YAML file of stages
    """
    days = options.days()
    if options.detach and not plan:
        from penstock.pipelines.flow.detach import detach

        made = read_flow(flow, settings(options.set), date=days[0])
        output.show(detach(made, options))
        return
    if output.json and len(days) > 1:
        raise UsageError("--json is of one run, --dates of several", remedy="Give each its --date")
    for day in days:
        _run(read_flow(flow, settings(options.set), date=day), options, output, plan=plan)


def _run(made: Flow, options: RunOptions, output: Display, *, plan: bool) -> None:
    if plan:
        output.show(plan_flow(made, options))
        return
    report = FlowRun(made, options, quiet=output.quiet).run()
    output.show(report)
    if (failure := report.failure()) is not None:
        failure.reported = True
        raise failure


def could_not_start(words: list[str], error: PenstockError, since: float) -> None:
    """Record a run of a schedule that failed before it began; its options may be what is wrong.

    words  what follows ``penstock run``, the flow first, as schedules write them
    """
    given, flow = dict(pairwise(words)), client_path(words[0])
    scheduled = given.get("--scheduled")
    runs = all_runs(flow.parent / FOLDER)
    began_since = (one for one in runs if began(one) >= since)
    if any(one.body.get("scheduled") == scheduled for one in began_since) or "--plan" in words:
        return
    day = dt.date.today()
    with suppress(ValueError):
        day = dt.date.fromisoformat(given.get("--date", ""))
    attempt = given.get("--attempt", "1/1") if error.exit_code == 1 else "1/1"
    pairs = [value for name, value in pairwise(words) if name == "--set"]
    variables = settings(tuple(one for one in pairs if one.partition("=")[1]))
    origin = {"scheduled": scheduled, "attempt": attempt}
    leave_record(flow, day, origin, error, variables, page="--no-report" not in words)


def schema(
    *,
    out: Annotated[ClientPath | None, Parameter(help="a file to write, not the terminal")] = None,
) -> None:
    """Print the JSON schema of flows, with which editors complete and check them."""
    from penstock.pipelines.flow.document.schema import flow_schema

    text = json.dumps(flow_schema(), indent=1)
    if out is None:
        print(text)
    else:
        save_text(out, text + "\n")
