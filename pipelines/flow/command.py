"""``penstock run`` and ``penstock schema`` on the command line."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import PenstockError, UsageError, warn
from penstock.files import save_text
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.flow.document import Flow, read_flow
from penstock.pipelines.flow.notify import notify_unread
from penstock.pipelines.flow.options import RunOptions, settings
from penstock.pipelines.flow.planning import plan_flow
from penstock.pipelines.flow.prometheus import save_metrics
from penstock.pipelines.flow.records import FOLDER, State, all_runs, began, begin_run
from penstock.pipelines.flow.run import run_flow_checked
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
        before = time.time()
        try:
            _run(read_flow(flow, settings(options.set), date=day), options, output, plan=plan)
        except PenstockError as error:
            if options.scheduled is not None and not plan and not error.reported:
                _leave_record(flow, day, options, error, before)
            raise


def _run(made: Flow, options: RunOptions, output: Display, *, plan: bool) -> None:
    if plan:
        output.show(plan_flow(made, options))
        return
    page = write_page if options.report else None
    report = run_flow_checked(made, options, quiet=output.quiet, failed=page)
    if options.report:
        report.report = write_page(Path(report.run))
    output.show(report)
    if (failure := report.failure()) is not None:
        failure.reported = True
        raise failure


def _leave_record(
    flow: Path, day: dt.date | None, options: RunOptions, error: PenstockError, before: float
) -> None:
    """Record a due run that could not start, and call its hook."""
    runs = [run for run in all_runs(flow.parent / FOLDER) if began(run) >= int(before)]
    if any(run.body.get("scheduled") == options.scheduled for run in runs):
        return  # it did start
    text = flow.read_text(errors="replace") if flow.is_file() else ""
    name = str(options.scheduled)
    record = begin_run(flow, name, day or dt.date.today(), text, options.origin)
    record.body.update({"state": State.FAILED, "seconds": 0.0, "error": dict(error.to_dict()),
                        "final": error.exit_code == 2})  # fmt: skip
    record.save()
    notify_unread(flow, record)
    save_metrics(record)
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
