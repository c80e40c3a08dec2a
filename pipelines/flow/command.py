"""``penstock run`` and ``penstock schema`` on the command line."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.errors import PenstockError, warn
from penstock.files import save_text
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.flow.document import Flow, read_flow
from penstock.pipelines.flow.notify import leave_record
from penstock.pipelines.flow.options import RunOptions, settings
from penstock.pipelines.flow.planning import plan_flow
from penstock.pipelines.flow.records import FOLDER, all_runs, began
from penstock.pipelines.flow.run import Choice, run_flow_checked
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
    for day in options.days():
        before = time.time()
        try:
            _run(read_flow(flow, settings(options.set), date=day), options, output, plan=plan)
        except PenstockError as error:
            if options.scheduled is not None and not plan and not error.reported:
                _could_not_start(flow, day, options, error, before)
            raise


def _run(made: Flow, options: RunOptions, output: Display, *, plan: bool) -> None:
    accepted = dict.fromkeys(options.accept, options.reason or "")
    choice = Choice(options.force, options.first, options.only, accepted, origin=_origin(options))
    replacing = {"replace_targets": options.replace_targets,
                 "replace_outputs": options.replace_outputs}  # fmt: skip
    if plan:
        output.show(plan_flow(made, choice, **replacing))
        return
    page = write_page if options.report else None
    report = run_flow_checked(made, choice, quiet=output.quiet, failed=page, **replacing)
    if options.report:
        report.report = write_page(Path(report.run))
    output.show(report)
    if (failure := report.failure()) is not None:
        failure.reported = True
        raise failure


def _origin(options: RunOptions) -> dict[str, Any]:
    if options.scheduled is None:
        return {}
    return {"scheduled": options.scheduled, "attempt": options.attempt}


def _could_not_start(
    flow: Path, day: dt.date | None, options: RunOptions, error: PenstockError, before: float
) -> None:
    runs = [run for run in all_runs(flow.parent / FOLDER) if began(run) >= int(before)]
    if any(run.body.get("scheduled") == options.scheduled for run in runs):
        return  # it did start
    given = settings(tuple(one for one in options.set if one.partition("=")[1]))
    record = leave_record(flow, day or dt.date.today(), _origin(options), error, given)
    if options.report:
        write_page(record.folder)


def write_page(folder: Path) -> str | None:
    """Write the page about a run; a run is not worse for having none."""
    from penstock.pipelines.flow.records import load_run
    from penstock.pipelines.report.command import write_report

    try:
        return str(write_report(load_run(folder)))
    except Exception as error:
        warn(f"the report of the run was not written: {error}")
        return None


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
