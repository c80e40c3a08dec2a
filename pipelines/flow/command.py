"""``penstock run`` and ``penstock schema`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import UsageError, warn
from penstock.files import save_text
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.options import RunOptions
from penstock.pipelines.flow.planning import plan_flow
from penstock.pipelines.flow.run import Choice, run_flow_checked
from penstock.pipelines.job.plan import PlanFlag


def settings(given: tuple[str, ...]) -> dict[str, str]:
    """Return variables from ``name=value`` words."""
    found = {}
    for word in given:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError("option --set has a bad value", expected="name=value", got=word)
        found[name.strip()] = value
    return found


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
    made = read_flow(flow, settings(options.set))
    choice = Choice(options.force, options.first, options.only)
    if plan:
        output.show(
            plan_flow(
                made, choice, replace_targets=options.replace_targets,
                replace_outputs=options.replace_outputs,
            )
        )  # fmt: skip
        return
    report = run_flow_checked(
        made, choice, quiet=output.quiet, replace_targets=options.replace_targets,
        replace_outputs=options.replace_outputs, failed=write_page if options.report else None,
    )  # fmt: skip
    if options.report:
        report.report = write_page(Path(report.run))
    output.show(report)
    if (failure := report.failure()) is not None:
        failure.reported = True
        raise failure


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
