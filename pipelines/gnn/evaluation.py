"""``penstock gnn evaluate``: the quality of a run's predictions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.graph import SPLITS, Graph, count_splits
from penstock.pipelines.gnn.options import EvaluateOptions
from penstock.pipelines.gnn.prediction import (
    OpenedRun,
    files_of,
    plan_prediction,
    predict_into,
)
from penstock.pipelines.gnn.report import EvaluateReport
from penstock.pipelines.gnn.run import Run
from penstock.pipelines.gnn.scores import class_scores, multi_scores, value_scores
from penstock.pipelines.job.declare import Context
from penstock.sizes import listed
from penstock.splits import own_splits
from penstock.temporary import TemporaryFolder
from penstock.workers.gnn.plan.facts import outputs_of
from penstock.workers.gnn.task import Columns

_REMEDY = "Make the folder of the run writable, or set TMPDIR to one on such a disk"


def evaluate_run(context: Context, opened: OpenedRun, options: EvaluateOptions) -> EvaluateReport:
    """Predict into a temporary folder, and compare with the labels."""
    run, graph, at = opened.run, opened.graph, opened.path
    classes, numbers = _matched_classes(run, at, graph)
    counted = _counted(opened, options.split)
    columns = Columns(run.task, probabilities=run.task != "value")
    # Within the run, where ranks on other hosts can also write.
    home = at if os.access(at, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    workers, plan = plan_prediction(context, opened, options, columns, "scores", home)
    with TemporaryFolder(".evaluate", home) as folder:
        weights = opened.copy_weights(options.checkpoint, folder)
        predict_into(folder, workers, plan, opened, weights, columns, remedy=_REMEDY)
        scores = _scored(folder, opened, counted, numbers, len(classes))
    return EvaluateReport(
        run=str(at),
        graph=str(graph.path),
        split=options.split,
        drawn=opened.split is not None and run.split is not None and options.split != "all",
        split_by=opened.split_by,
        checkpoint=options.checkpoint,
        task=run.task,
        classes=classes,
        new_classes=_new_classes(run, classes, scores),
        scores=scores,
        features_by=opened.features.by,
        features_ignored=opened.features.ignored,
        elsewhere=opened.elsewhere,
    )


def _scored(
    folder: Path, opened: OpenedRun, counted: Array, numbers: Array, count: int
) -> dict[str, Any]:
    """Return the scores of the counted nodes.

    numbers  of the graph's classes among the ``count`` classes of run and graph
    """
    run, graph = opened.run, opened.graph
    rows, predicted, probabilities = [], [], []
    for nodes, table in _rows(folder, graph):
        kept = counted[nodes]
        rows.append(nodes[kept])
        table = table.filter(kept)
        if run.task == "multi":
            predicted.append(_flags(table["prediction"].to_pylist(), count))
        else:
            predicted.append(np.asarray(table["prediction"]))
        if run.task != "value":
            probabilities.append(_matrix(table["probabilities"], run.outputs))
    order = np.concatenate(rows)
    labels: Any = graph.labels()
    if run.task == "value":
        return value_scores(labels[order], np.concatenate(predicted))
    # A class that the run does not know has the probability 0.
    given = np.pad(np.concatenate(probabilities), ((0, 0), (0, count - run.outputs)))
    if run.task == "class":
        return class_scores(numbers[labels[order]], np.concatenate(predicted), given)
    truth = _flags([numbers[labels[node]] for node in order], count)
    return multi_scores(truth, np.concatenate(predicted), given)


def _new_classes(run: Run, classes: tuple[str, ...], scores: dict[str, Any]) -> dict[str, int]:
    """Return the number of scored nodes of each class that the run does not know."""
    rows = scores.get("confusion", [])
    counts = [row[0] + row[2] if run.task == "multi" else sum(row) for row in rows]
    return dict(zip(classes[run.outputs :], counts[run.outputs :], strict=True))


def _matched_classes(run: Run, run_at: Path, graph: Graph) -> tuple[tuple[str, ...], Array]:
    """Return the classes of a run, then those only of the graph, and the graph's among them.

    A graph or run without names of classes has numbers.
    """
    about = graph.manifest
    if about.labels != run.task:
        raise UsageError(
            f"{graph.path} has no labels to compare with",
            expected=f"labels of kind {run.task}, as in {run_at}",
            got=f"labels of kind {about.labels}" if about.labels else "no labels",
        )
    known = run.classes or tuple(map(str, range(run.outputs)))
    there = about.classes or tuple(map(str, range(outputs_of(graph))))
    if run.task != "value" and not {*known} & {*there}:
        raise UsageError(
            f"{graph.path} has other classes than {run_at}",
            expected=listed(known),
            got=listed(there),
        )
    names = tuple(dict.fromkeys(known + there))
    position = {name: number for number, name in enumerate(names)}
    return names, np.array([position[name] for name in there])


def _counted(opened: OpenedRun, split: str) -> Array:
    graph = opened.graph
    chosen, what, got = graph.labelled(), "no node has a label", None
    if split != "all":
        splits = own_splits(graph) if opened.split is None else opened.split.splits(graph)
        chosen = chosen & (splits == SPLITS.index(split))
        counts = [f"{name} {count}" for name, count in count_splits(splits).items()]
        what, got = f"no node of {split} has a label", ", ".join(counts)
    if not chosen.any():
        raise UsageError(f"in {graph.path} {what}", got=got, remedy="Name another split, or all")
    return chosen


def _rows(folder: Path, graph: Graph) -> Iterator[tuple[Array, Any]]:
    import pyarrow.parquet as pq

    names, first = graph.user_ids().combine_chunks(), 0
    for path in files_of(folder):
        table = pq.read_table(path)
        ids = table["id"].combine_chunks()
        if ids.equals(names[first : first + len(ids)]):  # in a zoo, ids are ambiguous
            nodes = np.arange(first, first + len(ids))
        else:
            nodes = graph.internal_ids(ids)
        first += len(ids)
        yield nodes, table


def _flags(lists: list[Any], classes: int) -> Array:
    flags = np.zeros((len(lists), classes), bool)
    rows = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    flags[rows, [c for one in lists for c in one]] = True
    return flags


def _matrix(column: Any, width: int) -> Array:
    lists = column.combine_chunks()
    values: Array = np.asarray(lists.flatten())
    return values.reshape(len(lists), width)  # empty for a part without nodes of the split
