"""``penstock gnn``: full-batch graph neural networks, from Python.

from penstock import gnn

gnn.train("g", "run", hidden=64, dropout=0.5)
gnn.train("g", "run", training=gnn.Training(lr=0.005, patience=20))
gnn.train("g", "run", spec=gnn.Model(layers=(gnn.Layer("gat", 64, heads=8), gnn.Layer("gat"))))
gnn.evaluate("run").scores["accuracy"]
gnn.predict("run", "predictions", embeddings=True)
print(gnn.plan("g", model="sage", layers=3).text())
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError, warn
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.gnn.options import EvaluateOptions, GnnOptions, PredictOptions
from penstock.pipelines.gnn.report import EvaluateReport, PredictReport, TrainReport
from penstock.pipelines.job.declare import Context, Source, job, open_run
from penstock.workers.gnn.plan.lowering import ModelPlan
from penstock.workers.gnn.plan.spec import RESUMABLE, Layer, Model, Training

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
    "Training",
    "evaluate",
    "plan",
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
def train_run(context: Context, graph: Graph, run: RunOutput, options: GnnOptions) -> TrainReport:
    """Train a model on the features and labels of a graph's nodes.

    Parameters
    ----------
    graph
        directory of a graph
    run
        directory of the run to write
    """
    from penstock.pipelines.gnn.training import train_model

    return train_model(context, graph, run, options)


def train(
    graph: str | Path | Graph, run: str | Path, *, training: Training | None = None, **options: Any
) -> TrainReport:
    """Train a model on a graph, full batch, and save it in the directory ``run``.

    Parameters
    ----------
    graph
        A graph with features and labels, or its directory.
    run
        Directory to write: ``run.json``, ``metrics.jsonl``, ``plan.txt``, ``split.parquet`` and
        checkpoints.
    training
        Epochs, optimizer and the like at once, instead of options of these names.
    **options
        The options of ``penstock gnn train``, such as ``hidden``, ``epochs``, ``lr`` or ``parts``;
        ``spec`` may also be a ``Model``. ``cluster`` chooses where it runs, as in ``connect``.

    Returns
    -------
    TrainReport
        Metrics of the best epoch, times and memory; ``text()`` and ``to_dict()``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph.
    CapacityError
        The training run does not fit into memory or on disk.
    OutputExists
        ``run`` holds a run, and neither ``resume`` nor ``overwrite`` is set.
    PenstockError
        The loss became NaN or infinite.

    Examples
    --------
    >>> report = gnn.train("g", "run", model="sage", layers=3, hidden=32)
    >>> report.trained.metrics["test"]["score"]
    """
    return train_run(graph, run, **_with_training(training, options))


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


def plan(
    graph: str | Path | Graph, *, training: Training | None = None, **options: Any
) -> ModelPlan:
    """Return the plan of a training run without running it.

    If the run does not fit, this warns, and returns the plan.

    Parameters
    ----------
    graph
        A graph with features and labels, or its directory.
    training
        As for ``train``.
    **options
        As for ``train``.

    Returns
    -------
    ModelPlan
        Operations by layer, with predicted seconds, and memory; ``text()``, ``to_dict()``,
        ``seconds`` and ``memory_bytes``.

    Raises
    ------
    UsageError
        Options that contradict each other or the graph, or a partition that does not exist: then
        ``penstock gnn plan`` shows no operations.

    Examples
    --------
    >>> print(gnn.plan("g", model="sage", layers=3).text())
    """
    from penstock.pipelines.gnn.training import unnamed_run

    path = graph.path if isinstance(graph, Graph) else client_path(graph)
    made = train_run.plan(graph, unnamed_run(path), **_with_training(training, options))
    if made.problem is not None:
        warn(str(made.problem))
    if not isinstance(made.detail, ModelPlan):
        raise UsageError(
            f"{path} has no partition with one part per rank",
            remedy=f"Make them with penstock partition {path} -k K, or by training",
        )
    return made.detail


def _with_training(training: Training | None, options: dict[str, Any]) -> dict[str, Any]:
    if training is None:
        return options
    given = {name: getattr(training, name) for name in Training.__dataclass_fields__}
    if both := sorted(given.keys() & options.keys()):
        raise UsageError(
            f"{both[0]} is given twice: as an option, and by the Training",
            remedy=f"Leave it in the Training: Training({both[0]}=...)",
        )
    return {**given, **options}
