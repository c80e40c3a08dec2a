"""Curves of training runs: loss, scores and throughput by epoch, from the metrics that each appends
to metrics.jsonl: gnn and embed from the first epoch on, word2vec with its vectors.

Such a file is read as it is: half a line, of a training run that was killed, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.pipelines.report.content import Chart, Table, number, thinned
from penstock.pipelines.report.outputs import StageOutput
from penstock.sizes import plural

_MOST_EPOCHS = 300  # of one curve
_SPLITS = ("train", "valid", "test")
_SCORES = {"class": "accuracy", "multi": "micro F1"}

Line = dict[str, Any]
Columns = dict[str, list[float | None]]


def epoch_lines(output: StageOutput) -> list[Line]:
    """Return a dict for every epoch of a training run that has been written down, in order."""
    file = output.at and output.at / "metrics.jsonl"
    if file is None or not file.is_file():
        return []
    found = {}
    for line in file.read_bytes().splitlines():
        with suppress(ValueError):
            body = json.loads(line)
            if "loss" in body or "train" in body:
                found[body["epoch"]] = body  # the last one, if an epoch was trained again
    return [found[epoch] for epoch in sorted(found)]


def training(output: StageOutput) -> Iterator[Table]:
    """Return the curves of a training run."""
    lines = epoch_lines(output)
    if not lines:
        return
    gnn = output.format == "penstock-gnn"
    score = _SCORES.get(str(output.manifest.get("task")), "score") if gnn else "MRR"
    loss: Columns = {"loss": _column(lines, "loss")}
    if gnn:
        loss = {split: _column(lines, split, "loss") for split in _SPLITS}
    scores: Columns = {"valid": _column(lines, "valid", "mrr")}
    if gnn:
        scores = {split: _column(lines, split, "score") for split in _SPLITS}
    unit, speeds = _speeds(output, lines)
    curves = [
        ("loss", f"Lower is better; {plural(len(lines), 'epoch')}.", "loss", loss),
        (score if gnn else f"{score} of validation edges", "Higher is better.", score, scores),
        (
            "throughput",
            "Higher is better; the first epoch also compiles and starts.",
            unit,
            {unit: speeds},
        ),
    ]
    if len(lines) == 1:
        rows = [
            (f"{title} {name}" if name in _SPLITS else name, values[0])
            for title, *_, columns in curves
            for name, values in columns.items()
        ]
        rows = [row for row in rows if row[1] is not None]
        yield Table(f"{output.name}: its only epoch so far", ("What", "Value"), rows)
        return
    for title, about, y, columns in curves:
        known = {name: some for name, some in columns.items() if any(v is not None for v in some)}
        numbers = zip(_column(lines, "epoch"), *known.values(), strict=True)
        rows = [row for row in numbers if any(value is not None for value in row[1:])]
        if rows:
            rows = [rows[i] for i in thinned(len(rows), _MOST_EPOCHS)]
            chart = Chart("lines", "epoch", y, zero=title == "throughput")
            yield Table(f"{output.name}: {title}", ("Epoch", *known), rows, about, chart)


def _column(lines: list[Line], *path: str) -> list[float | None]:
    found: list[Any] = lines
    for key in path:
        found = [one.get(key) if isinstance(one, dict) else None for one in found]
    return [number(one) for one in found]


def _speeds(output: StageOutput, lines: list[Line]) -> tuple[str, list[float | None]]:
    """Return a unit, and how much each epoch trained a second."""
    unit, works = "words", _column(lines, "words")
    if output.format != "penstock-vectors":
        edges = number(output.report.get("edges", output.manifest.get("edges")))
        # Every layer of a GNN gathers over all edges.
        layers = len(output.manifest["model"]["layers"]) if output.format == "penstock-gnn" else 1
        unit, works = ("edges", [edges * layers] * len(lines)) if edges else ("epochs", [1.0])
        works = works * (len(lines) // len(works))
    pairs = zip(works, _column(lines, "seconds"), strict=True)
    speeds = [work / took if work and took else None for work, took in pairs]
    if max((speed or 0 for speed in speeds), default=0) >= 2e6:
        return f"million {unit}/s", [speed and speed / 1e6 for speed in speeds]
    return f"{unit}/s", speeds
