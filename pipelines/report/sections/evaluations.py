"""Tables of the results of evaluations: classes, ranks, words."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from penstock.pipelines.report.charts import Section, Table, table
from penstock.pipelines.report.sections.outputs import StageOutput
from penstock.pipelines.report.values import (
    amount,
    mapping,
    mappings,
    number,
    shown_number,
    text,
)

_RANKED = ("mrr", "mr", "hits1", "hits3", "hits10", "ranks")
_CLASSIFIED = ("accuracy", "micro_f1", "macro_f1", "roc_auc", "mse", "mae", "r2", "nodes")
_NAMES = {
    "mrr": "MRR", "mr": "mean rank", "hits1": "Hits@1", "hits3": "Hits@3", "hits10": "Hits@10",
    "micro_f1": "micro F1", "macro_f1": "macro F1", "roc_auc": "ROC-AUC", "mse": "MSE",
    "mae": "MAE", "r2": "R2",
}  # fmt: skip
_CONFUSIONS = 20


def evaluation_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return the tables of all evaluations, and the scores that training runs end with."""
    tables = [found for one in outputs for found in _tables(one)]
    return Section("Evaluation", tuple(tables)) if tables else None


def _tables(one: StageOutput) -> list[Table]:
    report = one.report
    return [
        *_splits(one.name, mapping(report.get("metrics"))),
        *_ranks(one.name, report),
        *_classes(one.name, report),
        *_words(one.name, report),
    ]


def _splits(name: str, metrics: dict[str, Any]) -> list[Table]:
    """Return the loss and score of each split with which a GNN's training ends."""
    rows = [
        (split, shown_number(found.get("loss")), shown_number(found.get("score")))
        for split in ("train", "valid", "test")
        if (found := mapping(metrics.get(split)))
    ]
    return [table(f"{name}: at the best epoch", ("Split", "Loss", "Score"), rows)] * bool(rows)


def _ranks(name: str, report: dict[str, Any]) -> list[Table]:
    sides = {"both": "scores", "tail": "tail", "head": "head", "validation": "validation"}
    found = {side: mapping(report.get(key)) for side, key in sides.items()}
    found = {
        side: scores for side, scores in found.items() if number(scores.get("mrr")) is not None
    }
    if not found:
        return []
    heads = ("Predicted", *(_NAMES.get(metric, metric) for metric in _RANKED))
    rows = [
        (side, *(shown_number(scores.get(metric)) for metric in _RANKED))
        for side, scores in found.items()
    ]
    known = report.get("filtered")
    filtered = f", {'' if known else 'not '}filtered" if isinstance(known, bool) else ""
    split = text(report.get("split"))
    return [table(f"{name}: ranks{f' of {split}' if split else ''}{filtered}", heads, rows)]


def _classes(name: str, report: dict[str, Any]) -> list[Table]:
    scores = mapping(report.get("scores"))
    rows = [
        (_NAMES.get(metric, metric), shown_number(scores.get(metric)))
        for metric in _CLASSIFIED
        if number(scores.get(metric)) is not None
    ]
    if not rows:
        return []
    split = text(report.get("split"))
    of = f" of {split}" if split else ""
    found = [table(f"{name}: scores{of}", ("Score", "Value"), rows)]
    classes = report.get("classes")
    names = [text(one) for one in classes] if isinstance(classes, list | tuple) else []
    f1 = scores.get("f1")
    counts = _matrix(scores.get("confusion"), len(names))
    if isinstance(f1, list) and len(f1) == len(names):
        rows = [(names[i], shown_number(value)) for i, value in enumerate(f1)]
        found.append(table(f"{name}: F1 of each class{of}", ("Class", "F1"), rows))
    confused = [
        (count, names[truth], names[given])
        for truth, row in enumerate(counts)
        for given, count in enumerate(row)
        if truth != given and count
    ]
    confused.sort(key=lambda one: -one[0])
    if confused:
        lines = [(truth, given, f"{count:,.0f}") for count, truth, given in confused[:_CONFUSIONS]]
        heads = ("Class", "Predicted as", "Nodes")
        found.append(table(f"{name}: most frequent confusions{of}", heads, lines))
    return found


def _matrix(value: Any, size: int) -> list[list[float]]:
    """Return a square matrix of counts; an empty one if the value is not one."""
    if not isinstance(value, list) or len(value) != size:
        return []
    if any(not isinstance(row, list) or len(row) != size for row in value):
        return []
    return [[amount(one) or 0.0 for one in row] for row in value]


def _words(name: str, report: dict[str, Any]) -> list[Table]:
    found = []
    labels = mapping(report.get("labels"))
    if shares := mappings(labels.get("shares")):
        rows = [
            (_share(one.get("share")), shown_number(one.get("micro_f1")),
             shown_number(one.get("macro_f1")))
            for one in shares
        ]  # fmt: skip
        heads = ("Trained on", "Micro F1", "Macro F1")
        found.append(table(f"{name}: labels predicted from vectors", heads, rows))
    if pairs := mappings(report.get("pairs")):
        scored = [
            (_file(one.get("file")), shown_number(one.get("spearman")) or "undefined",
             shown_number(one.get("used")), shown_number(one.get("unknown")))
            for one in pairs
        ]  # fmt: skip
        names = ("File", "Spearman", "Pairs", "With unknown words")
        found.append(table(f"{name}: similarity of word pairs", names, scored))
    if analogies := mappings(report.get("analogies")):
        answered = [
            (_file(one.get("file")), text(part.get("section")),
             *(shown_number(part.get(key)) for key in ("3cosadd", "3cosmul", "used", "unknown")))
            for one in analogies
            for part in [*mappings(one.get("sections")), mapping(one.get("total"))]
        ]  # fmt: skip
        columns = ("File", "Section", "3CosAdd", "3CosMul", "Questions", "With unknown words")
        found.append(table(f"{name}: analogies", columns, answered))
    return found


def _share(value: Any) -> str:
    share = number(value)
    return "" if share is None else f"{100 * share:.3g} %"


def _file(value: Any) -> str:
    return PurePath(text(value)).name
