"""``penstock gnn train|predict|evaluate|plan``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.gnn import evaluate, predict
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag

app = App(name="gnn", group_parameters=OPTIONS)

GraphAt = Annotated[ClientPath, Parameter(help="directory of a graph")]


@app.command(name="train", sort_key=1)
def train(
    graph: GraphAt,
    run: Annotated[ClientPath, Parameter(help="directory of the run to write")],
    /,
    *,
    options: GnnOptions = GnnOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Train a model on the features and labels of a graph's nodes."""
    from penstock.pipelines.gnn.training import TrainJob

    opened = Graph.open(graph, verify=options.verify, quiet=output.quiet)
    job = TrainJob(opened, run, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)


app.command(predict.command, name="predict", sort_key=2)
app.command(evaluate.command, name="evaluate", sort_key=3)


@app.command(name="plan", sort_key=4)
def plan(
    graph: GraphAt,
    run: Annotated[
        ClientPath | None, Parameter(help="directory of the run [default: one next to the graph]")
    ] = None,
    /,
    *,
    options: GnnOptions = GnnOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    output: Display = Display(),
) -> None:
    """Show what train would do, as train --plan does: operations, memory, disk and time."""
    from penstock.pipelines.gnn.training import unnamed_run

    run = run or unnamed_run(graph)
    train(graph, run, options=options, cluster=cluster, plan=True, output=output)
