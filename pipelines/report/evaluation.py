"""Tables of the results of evaluations: scores, classes, ranks, words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from penstock.pipelines.report.content import Table, number
from penstock.pipelines.report.outputs import StageOutput

_NAMES = {
    "mrr": "MRR", "mr": "Mean rank", "hits1": "Hits@1", "hits3": "Hits@3", "hits10": "Hits@10",
    "micro_f1": "Micro F1", "macro_f1": "Macro F1", "roc_auc": "ROC-AUC", "mse": "MSE",
    "mae": "MAE", "r2": "R2", "3cosadd": "3CosAdd", "3cosmul": "3CosMul", "share": "Trained on",
    "unknown": "With unknown words", "ndcg": "NDCG", "mrr_of_tails": "MRR of tails",
    "mrr_of_heads": "MRR of heads",
}  # fmt: skip
_SCORES = ("accuracy", "micro_f1", "macro_f1", "roc_auc", "mse", "mae", "r2",
           "mrr", "mr", "hits1", "hits3", "hits10")  # fmt: skip
_SIDES = ("tail", "head")
_CONFUSIONS = 20


def evaluation(output: StageOutput) -> Iterator[Table]:
    """Return the results of an evaluation, and the scores that a training run ends with."""
    report, name = output.report, output.name
    scores = [(_named(key), report[key]) for key in _SCORES if number(report.get(key)) is not None]
    if scores:
        of = f" of {report['split']}" if report.get("split") else ""
        how = {True: ", filtered", False: ", not filtered", None: ""}[report.get("filtered")]
        yield Table(f"{name}: scores{of}{how}", ("Score", "Value"), scores)
    at_end = report.get("metrics")
    sides = {**report, **(at_end if isinstance(at_end, dict) else {})}
    for title, first, keys in (
        ("at the best epoch", "Split", ("train", "valid", "test")),
        ("ranks by what is predicted", "Predicted", (*_SIDES, "validation")),
    ):
        if found := [{first: key, **sides[key]} for key in keys if sides.get(key)]:
            yield _rows(f"{name}: {title}", found)
    if classes := report.get("classes"):
        yield from _classes(name, classes, report)
    lists: dict[str, Any] = {
        f"the best {report.get('at')} answers": [
            {"predicted": side, **of} for side, of in (report.get("lists") or {}).items()
        ],
        "relations and their kinds": [
            {"name": one, "edges": of["edges"], **{f"mrr_of_{s}s": of[s]["mrr"] for s in _SIDES}}
            for names in (report.get("kinds"), report.get("relations"))
            if isinstance(names, dict)  # of a training, a number
            for one, of in names.items()
        ],
        "labels predicted from vectors": (report.get("labels") or {}).get("shares"),
        "similarity of word pairs": report.get("pairs"),
        "analogies": [
            {"file": one["file"], **part}
            for one in report.get("analogies") or []
            for part in [*one["sections"], one["total"]]
        ],
    }
    for title, some in lists.items():
        if isinstance(some, list) and some:
            yield _rows(f"{name}: {title}", some)


def _rows(title: str, found: list[dict[str, Any]]) -> Table:
    """Return a row for each dict, by the keys of the first."""
    keys = list(found[0])
    rows = [[PurePath(one[k]).name if k == "file" else one.get(k) for k in keys] for one in found]
    return Table(title, [_named(key) for key in keys], rows)


def _named(key: str) -> str:
    return _NAMES.get(key, key.replace("_", " ").capitalize())


def _classes(name: str, classes: list[str], report: dict[str, Any]) -> Iterator[Table]:
    if f1 := report.get("f1"):
        rows = list(zip(classes, f1, strict=True))
        yield Table(f"{name}: F1 of each class", ("Class", "F1"), rows)
    confused = [
        (classes[truth], classes[given], count)
        for truth, row in enumerate(report.get("confusion") or [])
        for given, count in enumerate(row)
        if truth != given and count
    ]
    if confused:
        confused.sort(key=lambda one: -one[2])
        heads = ("Class", "Predicted as", "Nodes")
        yield Table(f"{name}: most frequent confusions", heads, confused[:_CONFUSIONS])
