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

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError, warn
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.gnn.options import (
    EvaluateOptions,
    GnnOptions,
    ModelOptions,
    PredictOptions,
)
from penstock.pipelines.gnn.report import EvaluateReport, PredictReport, TrainReport
from penstock.pipelines.job import plan as plan_job
from penstock.pipelines.job import run as run_job
from penstock.pipelines.job.declare import Context, Source, job, open_run
from penstock.workers.gnn.plan.lowering import ModelPlan
from penstock.workers.gnn.plan.spec import Layer, Model, Training

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.gnn.prediction import OpenedRun

__all__ = [
    "EvaluateOptions",
    "EvaluateReport",
    "GnnOptions",
    "Layer",
    "Model",
    "ModelOptions",
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


def train(
    graph: str | Path | Graph,
    run: str | Path,
    *,
    spec: str | Path | Model | None = None,
    training: Training | None = None,
    cluster: str | ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> TrainReport:
    """Train a model on a graph, full batch, and save it in the directory ``run``.

    Parameters
    ----------
    graph
        A graph with features and labels, or its directory.
    run
        Directory to write: ``run.json``, ``metrics.jsonl``, ``plan.txt``, ``split.parquet`` and
        checkpoints.
    spec
        The model, or a YAML file that declares it, in place of ``model``, ``layers``, ``hidden``
        and the like.
    training
        Epochs, optimizer and the like at once, in place of options of these names.
    cluster
        Where it runs, as for ``connect`` [default: this machine].
    quiet
        Print no progress.
    **options
        Fields of ``GnnOptions``, as ``hidden``, ``epochs``, ``lr`` or ``parts``: the options of
        ``penstock gnn train``.

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
    from penstock.pipelines.gnn.training import TrainJob

    declared, options = _declared(spec, _with_training(training, options))
    given = GnnOptions(**options)
    opened = Graph.open(client_path(graph), verify=given.verify, quiet=quiet)
    return run_job(TrainJob(opened, client_path(run), given, cluster, declared, quiet=quiet))


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
    graph: str | Path | Graph,
    *,
    spec: str | Path | Model | None = None,
    training: Training | None = None,
    cluster: str | ClusterSpec | None = None,
    **options: Any,
) -> ModelPlan:
    """Return the plan of a training run without running it.

    Where the run does not fit, a warning says so, and the plan is returned.

    Parameters
    ----------
    graph
        A graph with features and labels, or its directory.
    spec
        As for ``train``.
    training
        As for ``train``.
    cluster
        Where training would run [default: this machine].
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
        Options that contradict each other or the graph, or a partition that does not exist: what
        ``penstock gnn plan`` shows then has no operations.

    Examples
    --------
    >>> print(gnn.plan("g", model="sage", layers=3).text())
    """
    from penstock.pipelines.gnn.training import TrainJob, unnamed_run

    declared, options = _declared(spec, _with_training(training, options))
    given = GnnOptions(**options)
    opened = Graph.open(client_path(graph), verify=given.verify)
    planned = TrainJob(opened, unnamed_run(opened.path), given, cluster, declared, quiet=True)
    made = plan_job(planned)
    if made.problem is not None:
        warn(str(made.problem))
    if not isinstance(made.detail, ModelPlan):
        k = planned.connected.count
        raise UsageError(
            f"{opened.path} has no partition into {k} parts",
            remedy=f"Make it with penstock partition {opened.path} -k {k}, or by training",
        )
    return made.detail


def _declared(
    spec: str | Path | Model | None, options: dict[str, Any]
) -> tuple[Model | None, dict[str, Any]]:
    if isinstance(spec, Model):
        # As with a file: what else declares the model contradicts it.
        ModelOptions(
            **{k: v for k, v in options.items() if k not in ("resume", "overwrite", "verify")},
            spec=Path("a Model"),
        )
        return spec, options
    return None, options if spec is None else {**options, "spec": spec}


def _with_training(training: Training | None, options: dict[str, Any]) -> dict[str, Any]:
    if training is None:
        return options
    given = {name: getattr(training, name) for name in Training.__dataclass_fields__}
    if both := sorted(given.keys() & options.keys()):
        raise UsageError(
            f"{both[0]} is given twice: as an option, and by the Training",
            remedy=f"Say it in the Training: Training({both[0]}=...)",
        )
    return {**given, **options}
