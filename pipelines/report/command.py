"""``penstock report``: the page of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from cyclopts import Parameter

from penstock.files import save_text
from penstock.options import ClientPath
from penstock.paths import shown
from penstock.pipelines.display import Display
from penstock.pipelines.flow.records import FOLDER, RunRecord, find_run
from penstock.pipelines.report.outputs import job_record, manifest_of
from penstock.pipelines.report.page import page

NAME = "report.html"


def write_report(run: RunRecord, out: Path | None = None) -> Path:
    """Write the page of a run, into its folder or a file; return the path."""
    if out is None:
        # Next to the output of a job: within it, readers of Parquet would take the page for a part.
        single = run.body.get("single")
        out = run.folder.with_name(f"{run.folder.name}-{NAME}") if single else run.folder / NAME
    logs = os.path.relpath(run.folder / "logs", out.parent)
    save_text(out, page(run, quote(logs)))
    return out


def find_record(base: Path, name: str | None) -> RunRecord:
    """Return the record of a run, or one made of the output of a job that ran without a flow."""
    for folder in () if name is None else (base / name, Path(name)):
        if manifest_of(folder):
            return job_record(folder)
    return find_run(base, name)


def command(
    run: Annotated[
        str | None,
        Parameter(help="a run, by name or folder, or the output of a job [default: latest]"),
    ] = None,
    /,
    *,
    folder: Annotated[ClientPath, Parameter(name="--folder", help="the folder of runs")] = Path(
        FOLDER
    ),
    out: Annotated[
        ClientPath | None,
        Parameter(help="a file to write, not report.html in the run's folder"),
    ] = None,
    output: Display = Display(),
) -> None:
    """Write one HTML file about a run: verdict, changes, gates, curves, times, pictures."""
    path = write_report(find_record(folder, run), out)
    output.say({"report": str(path)}, shown(path))
