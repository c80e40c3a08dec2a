"""``penstock word2vec train|evaluate|export``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Group, Parameter

from penstock.cluster.spec import ClusterSpec
from penstock.options import ClientPath
from penstock.pipelines.display import Display
from penstock.pipelines.job import run_command
from penstock.pipelines.job.plan import PlanFlag
from penstock.pipelines.word2vec.evaluation import evaluate_vectors
from penstock.pipelines.word2vec.export import export_vectors
from penstock.pipelines.word2vec.options import Word2vecOptions

app = App(
    name="word2vec",
    help="Vectors of nodes and words: skip-gram over walks of a graph, lists, or text.",
    help_format="plaintext",
    group_parameters=Group("Options", sort_key=5),
    result_action="return_value",
)


@app.command(name="train", sort_key=1)
def train(
    inputs: Annotated[
        list[ClientPath],
        Parameter(
            help="a graph, a directory of walks, Parquet files with a column of lists, or text "
            "files (also .gz and .zst), one sentence a line"
        ),
    ],
    out: Annotated[ClientPath, Parameter(help="directory of vectors to write")],
    /,
    *,
    options: Word2vecOptions = Word2vecOptions(),
    cluster: ClusterSpec = ClusterSpec(),
    plan: PlanFlag = False,
    output: Display = Display(),
) -> None:
    """Train vectors on a graph, walked during training, on walks, or on text."""
    if not plan:
        from penstock.cluster.connect import begin_early

        begin_early(cluster, options.parts)
    from penstock.pipelines.word2vec.job import Word2vecJob

    job = Word2vecJob(inputs, out, options, cluster, quiet=output.quiet)
    run_command(job, output, planned=plan)


app.command(evaluate_vectors.command, name="evaluate", sort_key=2)
app.command(export_vectors.command, name="export", sort_key=3)
