"""``penstock embed train|evaluate|predict|export``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.embed.options import (
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from penstock.pipelines.help_page import OPTIONS
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag

app = App(name="embed", group_parameters=OPTIONS)

RunAt = Annotated[ClientPath, Parameter(help="directory of a run")]


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


@app.command(name="evaluate", sort_key=2)
def evaluate(
    run: RunAt,
    /,
    *,
    options: EvaluateOptions = EvaluateOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Rank the true answers of held-out edges: MR, MRR, Hits@1, 3 and 10."""
    from penstock.pipelines.embed.evaluation import EvaluateJob

    job = EvaluateJob(run, run, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)


@app.command(name="predict", sort_key=3)
def predict(
    run: RunAt,
    /,
    *,
    options: PredictOptions = PredictOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Show the most likely tails of a head and a relation, or heads of a tail."""
    from penstock.pipelines.embed.prediction import PredictJob

    job = PredictJob(run, run, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)


@app.command(name="export", sort_key=4)
def export(
    run: RunAt,
    out: Annotated[ClientPath, Parameter(help="directory of the vectors to write")],
    /,
    *,
    options: ExportOptions = ExportOptions(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Write vectors with your own ids, as Parquet and .npy."""
    from penstock.pipelines.embed.exporting import ExportJob

    run_command(ExportJob(run, out, options, quiet=output.quiet), output, planned=plan)
