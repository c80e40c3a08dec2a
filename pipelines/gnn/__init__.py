"""``penstock gnn``: full-batch graph neural networks, from Python.

from penstock import gnn

gnn.train("g", "run", hidden=64, dropout=0.5)
gnn.train("g", "run", spec=gnn.Model(layers=(gnn.Layer("gat", 64, heads=8), gnn.Layer("gat"))))
gnn.evaluate("run").scores["accuracy"]
gnn.predict("run", "predictions", embeddings=True)
print(gnn.train.plan("g", "run", model="sage", layers=3).text())
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.graph import Graph
from penstock.pipelines.gnn.options import EvaluateOptions, GnnOptions, PredictOptions
from penstock.pipelines.gnn.report import EvaluateReport, PredictReport, TrainReport
from penstock.pipelines.help_page import group
from penstock.pipelines.job.declare import Context, Source, job, open_run
from penstock.workers.gnn.plan.lowering import ModelPlan
from penstock.workers.gnn.plan.spec import RESUMABLE, Layer, Model

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.gnn.prediction import OpenedRun
    from penstock.run_output import RunOutput

__all__ = [
    "EvaluateOptions",
    "EvaluateReport",
    "GnnOptions",
    "Layer",
    "Model",
    "ModelPlan",
    "PredictOptions",
    "PredictReport",
    "TrainReport",
    "evaluate",
    "predict",
    "train",
]


def _varying(options: GnnOptions) -> tuple[str, ...]:
    """Return the options that may change on resume, as they do not affect an epoch's weights."""
    looks_ahead = options.schedule == "cosine"
    return tuple(name for name in RESUMABLE if not (looks_ahead and name == "epochs"))


@job(
    "gnn train",
    writes="run",
    version=2,
    files=("spec",),
    passing=("parts",),
    varying=_varying,
    on_gpu=True,
)
def train(context: Context, graph: Graph, run: RunOutput, options: GnnOptions) -> TrainReport:
    """Train a model on the features and labels of a graph's nodes.

    Parameters
    ----------
    graph
        directory of a graph
    run
        directory of the run to write

    Examples
    --------
    >>> report = gnn.train("g", "run", model="sage", layers=3, hidden=32)
    >>> report.trained.metrics["test"]["score"]
    """
    from penstock.pipelines.gnn.training import train_model

    return train_model(context, graph, run, options)


def _open_run(run: str | Path, options: Any, verify: bool, quiet: bool) -> OpenedRun:
    from penstock.pipelines.gnn.prediction import open_run as opened

    return opened(open_run(run, options, verify, quiet), options, quiet=quiet)


_RUN = Source(_open_run)


@job(
    "gnn predict",
    reads=_RUN,
    writes="predictions",
    passing=("verify",),
    on_gpu=True,
    resumable=False,
)
def predict(
    context: Context, run: OpenedRun, out: Output, options: PredictOptions
) -> PredictReport:
    """Predict every node with the weights of a run: a Parquet dataset with your own ids.

    Parameters
    ----------
    run
        directory of a run
    out
        directory of the predictions to write

    Examples
    --------
    >>> gnn.predict("run", "predictions", embeddings=True)
    """
    from penstock.pipelines.gnn.prediction import write_predictions

    return write_predictions(context, run, out, options)


@job("gnn evaluate", reads=_RUN, plans=True, on_gpu=True)
def evaluate(context: Context, run: OpenedRun, options: EvaluateOptions) -> EvaluateReport:
    """Evaluate a run on the labels: accuracy, F1, ROC-AUC, confusion matrix.

    Parameters
    ----------
    run
        directory of a run

    Examples
    --------
    >>> gnn.evaluate("run", split="valid").scores["accuracy"]
    """
    from penstock.pipelines.gnn.evaluation import evaluate_run

    return evaluate_run(context, run, options)


app = group(train, predict, evaluate)
