"""``penstock gnn``: full-batch graph neural networks, from Python.

from penstock import gnn

gnn.train("g", "run", hidden=64, dropout=0.5)
gnn.train("g", "run", spec=gnn.Model(layers=(gnn.Layer("gat", 64, heads=8), gnn.Layer("gat"))))
gnn.evaluate("run").scores["accuracy"]
gnn.predict("run", "predictions", embeddings=True)
print(gnn.plan("g", model="sage", layers=3).text())
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.paths import client_path
from penstock.pipelines.gnn.options import (
    EvaluateOptions,
    GnnOptions,
    ModelOptions,
    PredictOptions,
)
from penstock.pipelines.gnn.report import EvaluateReport, PredictReport, TrainReport
from penstock.workers.gnn.plan.spec import Layer, Model, Training

__all__ = [
    "EvaluateOptions",
    "EvaluateReport",
    "GnnOptions",
    "Layer",
    "Model",
    "ModelOptions",
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
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> TrainReport:
    """Train a model on ``graph`` and keep it in the folder ``run``.

    spec     the model, or a YAML file with it, in place of model, layers, hidden, ...
    options  the fields of GnnOptions
    """
    from penstock.pipelines.gnn.training import train_model

    declared, options = _declared(spec, options)
    given = GnnOptions(**options)
    where = cluster or ClusterSpec()
    return train_model(_path(graph), client_path(run), given, where, quiet, declared)


def predict(
    run: str | Path,
    out: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> PredictReport:
    """Predict for every node with the weights of ``run``, and write Parquet at ``out``.

    Options are those of PredictOptions; ``graph`` names another graph than the one trained on.
    """
    from penstock.pipelines.gnn.prediction import predict_nodes

    given = PredictOptions(**_with_path(options))
    return predict_nodes(client_path(run), client_path(out), given, cluster or ClusterSpec(), quiet)


def evaluate(
    run: str | Path,
    *,
    cluster: ClusterSpec | None = None,
    quiet: bool = True,
    **options: Any,
) -> EvaluateReport:
    """Compare the predictions of ``run`` with the labels; options are those of EvaluateOptions."""
    from penstock.pipelines.gnn.evaluation import evaluate_run

    given = EvaluateOptions(**_with_path(options))
    return evaluate_run(client_path(run), given, cluster or ClusterSpec(), quiet)


def plan(
    graph: str | Path | Graph,
    *,
    spec: str | Path | Model | None = None,
    cluster: ClusterSpec | None = None,
    **options: Any,
) -> Any:
    """Return the plan of a training: ``text()``, ``to_dict()``, ``memory_bytes``."""
    from penstock.pipelines.gnn.planning import plan_model

    declared, options = _declared(spec, options)
    given = ModelOptions(**options)
    return plan_model(_path(graph), given, cluster or ClusterSpec(), declared)[0]


def _declared(
    spec: str | Path | Model | None, options: dict[str, Any]
) -> tuple[Model | None, dict[str, Any]]:
    if isinstance(spec, Model):
        # As with a file: what else declares the model contradicts it.
        ModelOptions(
            **{k: v for k, v in options.items() if k not in ("resume", "overwrite")},
            spec=Path("a Model"),
        )
        return spec, options
    return None, options if spec is None else {**options, "spec": spec}


def _with_path(options: dict[str, Any]) -> dict[str, Any]:
    if isinstance(options.get("graph"), Graph):
        return {**options, "graph": options["graph"].path}
    return options


def _path(graph: str | Path | Graph) -> Path:
    return graph.path if isinstance(graph, Graph) else client_path(graph)
