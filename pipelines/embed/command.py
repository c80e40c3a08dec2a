"""``penstock embed train|evaluate|predict|export``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.embed import evaluate, export, predict
from penstock.pipelines.embed.options import EmbedOptions
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag

app = App(name="embed", group_parameters=OPTIONS)


@app.command(name="train", sort_key=1)
def train(
    graph: Annotated[ClientPath, Parameter(help="directory of a graph")],
    run: Annotated[ClientPath, Parameter(help="directory of the run to write")],
    /,
    *,
    options: EmbedOptions = EmbedOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Train a vector for every node and relation, so that edges score above non-edges."""
    from penstock.pipelines.embed.training import TrainJob

    opened = Graph.open(graph, verify=options.verify, quiet=output.quiet)
    job = TrainJob(opened, run, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)


app.command(evaluate.command, name="evaluate", sort_key=2)
app.command(predict.command, name="predict", sort_key=3)
app.command(export.command, name="export", sort_key=4)
