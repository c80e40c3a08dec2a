"""``penstock gnn train|predict|evaluate|plan``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.gnn import evaluate, predict, train_run
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job.declare import VerifiedRun

app = App(name="gnn", group_parameters=OPTIONS)
app.command(train_run.command, name="train", sort_key=1)
app.command(predict.command, name="predict", sort_key=2)
app.command(evaluate.command, name="evaluate", sort_key=3)


@app.command(name="plan", sort_key=4)
def plan(
    graph: Annotated[ClientPath, Parameter(help="directory of a graph")],
    run: Annotated[
        ClientPath | None, Parameter(help="directory of the run [default: one next to the graph]")
    ] = None,
    /,
    *,
    options: GnnOptions = GnnOptions(),
    how: VerifiedRun = VerifiedRun(),
    cluster: ClusterSpec = ClusterSpec(),
    output: Display = Display(),
) -> None:
    """Show what train would do, like train --plan: operations, memory and disk."""
    from penstock.pipelines.gnn.training import unnamed_run

    run = run or unnamed_run(graph)
    named = {"options": options, "how": how, "cluster": cluster, "output": output}
    train_run.command(graph, run, plan=True, **named)
