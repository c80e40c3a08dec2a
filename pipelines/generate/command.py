"""``penstock generate rmat|sbm|kg|zoo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from penstock.options import ClientPath
from penstock.pipelines.generate import job_of
from penstock.pipelines.generate.options import (
    KnowledgeOptions,
    RmatOptions,
    SbmOptions,
    ZooOptions,
)
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag
from penstock.pipelines.output import Output

app = App(name="generate", group_parameters=OPTIONS)

Out = Annotated[ClientPath, Parameter(help="the graph directory to write")]


@app.command(name="rmat", sort_key=1)
def rmat(
    out: Out,
    /,
    *,
    options: RmatOptions | None = None,
    plan: PlanFlag = False,
    output: Output = Output(),
) -> None:
    """R-MAT: skewed degrees and a small diameter, as in Graph500."""
    _run("rmat", out, options or RmatOptions(), plan, output)


@app.command(name="sbm", sort_key=2)
def sbm(
    out: Out,
    /,
    *,
    options: SbmOptions | None = None,
    plan: PlanFlag = False,
    output: Output = Output(),
) -> None:
    """Stochastic blocks: features and labels for a GNN to learn."""
    _run("sbm", out, options or SbmOptions(), plan, output)


@app.command(name="kg", sort_key=3)
def kg(
    out: Out,
    /,
    *,
    options: KnowledgeOptions | None = None,
    plan: PlanFlag = False,
    output: Output = Output(),
) -> None:
    """Triples whose tails can be predicted from head and relation."""
    _run("kg", out, options or KnowledgeOptions(), plan, output)


@app.command(name="zoo", sort_key=4)
def zoo(
    out: Out,
    /,
    *,
    options: ZooOptions | None = None,
    plan: PlanFlag = False,
    output: Output = Output(),
) -> None:
    """Very many small graphs, as in SwarmGraph's table 3."""
    _run("zoo", out, options or ZooOptions(), plan, output)


def _run(kind: str, out: Path, options: Any, planned: bool, output: Output) -> None:
    run_command(job_of(kind, out, options, quiet=output.quiet), output, planned=planned)
