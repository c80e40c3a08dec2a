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
from penstock.pipelines.display import Display, table_text
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
    *, folder: Base = Path(FOLDER), chosen: ListOptions = ListOptions(), output: Display = Display()
) -> None:
    """List runs, the newest last."""
    runs = [run for run in all_runs(folder, chosen.flow) if _matches(run, chosen)]
    if not runs and not output.json:
        print(f"no runs in {shown(folder)}", file=sys.stderr)
    rows = []
    for run in runs:
        error = run.body.get("error", {})  # of a run that was refused before any stage
        stages = run.stages_text() or error.get("what", "")[:_SHOWN]
        took = "" if run.seconds is None else f"{run.seconds:.1f} s"
        rows.append((run.name, run.date, run.state, took, stages))
    output.say([_line(run) for run in runs], table_text(rows))


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
    report = FlowReport.of(found)
    text, failure = report.text(), report.failure()
    if failure is not None and found.state != State.RUNNING:
        text += f"\n  {failure}\n  {shown(found.folder / 'logs')}"
    output.say(found.body, text)


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
    lines = [dict(zip(("stage", "what", "one", "other"), line, strict=True)) for line in found]
    body = {"one": str(runs[0].folder), "other": str(runs[1].folder), "differences": lines}
    heads = ("stage", "what", *(run.name for run in runs))
    rows = [tuple("none" if cell is None else text(cell) for cell in row) for row in found]
    output.say(with_named_numbers(body), table_text([heads, *rows]))


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
    count = plural(len(gone), "run") if gone else "none"
    text = f"{shown(folder)}: {count} removed, {len(all_runs(folder))} kept"
    output.say({"removed": gone}, text)


def _matches(run: RunRecord, chosen: ListOptions) -> bool:
    return (
        chosen.date in (None, run.date)
        and chosen.state in (None, run.state)
        and settings(chosen.set).items() <= run.variables.items()
    )


def _line(run: RunRecord) -> dict[str, Any]:
    stages = run.stages
    ran = sum(one["state"] == State.DONE for one in stages.values())
    return {
        "name": run.name,
        "flow": run.body["flow"],
        "date": run.date,
        "began": run.body["began"],
        "state": run.state,
        "seconds": run.seconds,
        "stages": len(stages),
        "ran": ran,
    }
