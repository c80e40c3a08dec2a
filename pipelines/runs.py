"""``penstock runs``: what is kept of the runs of flows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from penstock.documents import with_named_numbers
from penstock.options import ClientPath
from penstock.paths import shown
from penstock.pipelines.display import Display
from penstock.pipelines.flow.options import CleanOptions, ListOptions, ServeOptions, settings
from penstock.pipelines.flow.records import (
    FOLDER,
    RunRecord,
    State,
    all_runs,
    clean,
    find_run,
)
from penstock.pipelines.flow.report import FlowReport
from penstock.sizes import plural

app = App(name="runs")

_SHOWN = 120  # characters of an error

Base = Annotated[ClientPath, Parameter(name="--folder", help="the folder of runs")]


@app.command(name="list", sort_key=1)
def list_runs(
    *,
    folder: Base = Path(FOLDER),
    chosen: ListOptions = ListOptions(),
    output: Display = Display(),
) -> None:
    """List runs, the newest last."""
    runs = [run for run in all_runs(folder, chosen.flow) if _matches(run, chosen)]
    if output.json:
        print(json.dumps([_line(run) for run in runs], indent=1))
        return
    if not runs:
        print(f"no runs in {shown(folder)}", file=sys.stderr)
    width = max((len(run.name) for run in runs), default=0)
    for run in runs:
        one = _line(run)
        error = run.body.get("error")  # of a run that was refused before any stage
        what = str(error.get("what"))[:_SHOWN] if isinstance(error, dict) else ""
        stages = run.stages_text() or what
        took = "" if run.seconds is None else f"{run.seconds:.1f} s"
        line = f"{run.name:<{width}}  {run.date}  {one['state']:<11}  {took:>10}  {stages}"
        print(line.rstrip())


@app.command(name="show", sort_key=2)
def show(
    run: Annotated[str | None, Parameter(help="a run, by name or folder [default: latest]")] = None,
    /,
    *,
    folder: Base = Path(FOLDER),
    output: Display = Display(),
) -> None:
    """Show one run: its stages, gates and errors, and the paths of its logs."""
    found = find_run(folder, run)
    if output.json:
        print(json.dumps(found.body, indent=1))
        return
    report = FlowReport.of(found)
    print(report.text())
    failure = report.failure()
    if failure is not None and found.state != State.RUNNING:
        print(f"  {failure}\n  {shown(found.folder / 'logs')}")


@app.command(name="compare", sort_key=3)
def compare(
    one: Annotated[str, Parameter(help="a run, by name or folder")],
    other: Annotated[str, Parameter(help="another run")],
    /,
    *,
    folder: Base = Path(FOLDER),
    output: Display = Display(),
) -> None:
    """Show what differs between two runs: dates, states, variables, versions, seconds, metrics."""
    from penstock.pipelines.report.content import shown as text
    from penstock.pipelines.report.facts import differences

    runs = find_run(folder, one), find_run(folder, other)
    found = differences(*runs)
    if output.json:
        lines = [dict(zip(("stage", "what", "one", "other"), line, strict=True)) for line in found]
        body = {"one": str(runs[0].folder), "other": str(runs[1].folder), "differences": lines}
        print(json.dumps(with_named_numbers(body), indent=1))
        return
    heads = ("stage", "what", *(run.name for run in runs))
    rows = [tuple("none" if cell is None else text(cell) for cell in row) for row in found]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        print("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())


@app.command(name="serve", sort_key=4)
def serve_runs(
    *,
    folder: Base = Path(FOLDER),
    options: ServeOptions = ServeOptions(),
    output: Display = Display(),
) -> None:
    """Show the runs and their reports in a browser of this machine, read only, until Ctrl-C."""
    from penstock.pipelines.report.serve import RunServer, serve

    server = RunServer(folder, options.port)
    if output.json:
        print(json.dumps({"address": server.address}), flush=True)
    elif not output.quiet:
        print(f"{shown(folder)} at {server.address} (Ctrl-C ends it)", flush=True)
    serve(server)


@app.command(name="clean", sort_key=5)
def clean_runs(
    *,
    folder: Base = Path(FOLDER),
    options: CleanOptions = CleanOptions(),
    output: Display = Display(),
) -> None:
    """Remove old runs; outputs of stages and what was published stay."""
    gone = clean(folder, options.keep)
    if output.json:
        print(json.dumps({"removed": gone}, indent=1))
    elif not output.quiet:
        count = plural(len(gone), "run") if gone else "none"
        print(f"{shown(folder)}: {count} removed, {len(all_runs(folder))} kept")


def _matches(run: RunRecord, chosen: ListOptions) -> bool:
    return (
        chosen.date in (None, run.date)
        and chosen.state in (None, run.state)
        and settings(chosen.set).items() <= run.variables.items()
    )


def _line(run: RunRecord) -> dict[str, Any]:
    stages = run.stages
    ran = sum(one.get("state") == State.DONE for one in stages.values())
    return {
        "name": run.name,
        "flow": run.body.get("flow"),
        "date": run.date,
        "began": run.body.get("began"),
        "state": run.state,
        "seconds": run.seconds,
        "stages": len(stages),
        "ran": ran,
    }
