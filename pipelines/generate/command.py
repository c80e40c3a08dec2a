"""``penstock generate rmat|sbm|kg|zoo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import App, Parameter

from penstock.options import ClientPath
from penstock.pipelines.display import Display
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

app = App(name="generate", group_parameters=OPTIONS)

Out = Annotated[ClientPath, Parameter(help="the graph directory to write")]


def _command(kind: str, options_class: type[Any], about: str) -> Callable[..., None]:
    def generate(
        out: Out,
        /,
        *,
        options: Any = None,
        plan: PlanFlag = False,
        output: Display = Display(),
    ) -> None:
        job = job_of(kind, out, options or options_class(), quiet=output.quiet)
        run_command(job, output, planned=plan)

    generate.__doc__ = about
    generate.__annotations__["options"] = options_class | None
    return generate


for number, (name, options_class, about) in enumerate(
    (
        ("rmat", RmatOptions, "R-MAT: skewed degrees and a small diameter, as in Graph500."),
        ("sbm", SbmOptions, "Stochastic blocks: features and labels for a GNN to learn."),
        ("kg", KnowledgeOptions, "Triples whose tails can be predicted from head and relation."),
        ("zoo", ZooOptions, "Very many small graphs, as in SwarmGraph's table 3."),
    )
):
    app.command(_command(name, options_class, about), name=name, sort_key=number)
