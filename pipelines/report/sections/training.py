"""Curves of training runs: loss, scores and throughput by epoch, from the metrics that each appends
to metrics.jsonl: gnn and embed from the first epoch on, word2vec with its vectors.

Such a file is read as it is: half a line, of a training run that was killed, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.pipelines.flow.records import ENDED_WELL
from penstock.pipelines.report.charts import Chart, Section, Series, Table, line, table, thinned
from penstock.pipelines.report.sections.outputs import StageOutput
from penstock.pipelines.report.values import amount, mapping, mappings, number, shown_number
from penstock.sizes import plural

_LARGEST = 64 << 20  # bytes read of one file: more epochs than a curve can show
_FORMATS = ("penstock-gnn", "penstock-embed", "penstock-vectors")
_SPLITS = ("train", "valid", "test")
_TABLE_ROWS = 200
_SCORES = {"class": "accuracy", "multi": "micro F1"}

Line = dict[str, Any]


def training_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return the curves of all training runs of a run."""
    charts = [chart for one in outputs for chart in _charts(one)]
    return Section("Training", tuple(charts)) if charts else None


def epoch_lines(output: StageOutput) -> list[Line]:
    """Return a dict for every epoch of a training run that has been written down, in order."""
    if output.at is None or output.format not in _FORMATS:
        return []
    found = {}
    for body in _lines(output.at / "metrics.jsonl"):
        epoch = number(body.get("epoch"))
        if epoch is not None and ("loss" in body or "train" in body):
            found[epoch] = body  # an epoch that was trained again counts as it was the last time
    return [found[epoch] for epoch in sorted(found)]


def _lines(path: Path) -> Iterator[Line]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError:
        return
    for one in content.splitlines():
        try:
            body = parse_json(one)
        except ValueError:
            continue
        if isinstance(body, dict):
            yield mapping(body)


def _charts(output: StageOutput) -> list[Chart | Table]:
    lines = epoch_lines(output)
    if not lines:
        return []
    if len(lines) == 1:
        return [_only_epoch(output, lines[0])]
    epochs = [number(one["epoch"]) or 0.0 for one in lines]
    how_many = plural(len(lines), "epoch")
    ended = "" if output.state in ENDED_WELL else f"; state of the stage: {output.state}"
    found: list[Chart | Table] = []

    def chart(
        title: str, about: str, y: str, columns: dict[str, list[float | None]], zero: bool = False
    ) -> None:
        series = [one for name, values in columns.items() if (one := line(name, epochs, values))]
        if series:
            made = _chart(output, title, about, y, series, epochs, columns)
            found.append(replace(made, from_zero=zero))

    losses = {name: [_of_split(one, name, "loss") for one in lines] for name in _SPLITS}
    if not any(value is not None for value in losses["train"]):
        losses = {"loss": [number(one.get("loss")) for one in lines]}
    chart("loss", f"Lower is better; {how_many}{ended}.", "loss", losses)
    scores = {name: [_of_split(one, name, "score") for one in lines] for name in _SPLITS}
    task = output.report.get("task", output.manifest.get("task"))
    if output.format == "penstock-gnn" and task in _SCORES:
        chart(_SCORES[task], "Higher is better.", _SCORES[task], scores)
    if output.format == "penstock-embed":
        valid = {"valid": [number(mapping(one.get("valid")).get("mrr")) for one in lines]}
        chart("MRR of validation edges", "Higher is better.", "MRR", valid)
    unit, per_epoch = _work(output, lines)
    speeds = [
        done / took if done is not None and (took := amount(one.get("seconds"))) else None
        for one, done in zip(lines, per_epoch, strict=True)
    ]
    about = "Higher is better; the first epoch also compiles and starts."
    unit = f"{unit}/s"
    if max((speed for speed in speeds if speed is not None), default=0.0) >= 2e6:
        unit, speeds = f"million {unit}", [None if one is None else one / 1e6 for one in speeds]
    chart("throughput", about, unit, {unit: speeds}, zero=True)
    return found


def _only_epoch(output: StageOutput, only: Line) -> Table:
    """Return what is known of an epoch that makes no curve yet."""
    unit, (done,) = _work(output, [only])
    took = amount(only.get("seconds"))
    values = {"loss": number(only.get("loss"))}
    for split in _SPLITS:
        values |= {f"{split} {name}": _of_split(only, split, name) for name in ("loss", "score")}
    values |= {"seconds": took, f"{unit}/s": done / took if done is not None and took else None}
    rows = [(name, shown_number(value)) for name, value in values.items() if value is not None]
    return table(f"{output.name}: its only epoch so far", ("What", "Value"), rows)


def _of_split(one: Line, split: str, name: str) -> float | None:
    return number(mapping(one.get(split)).get(name))


def _work(output: StageOutput, lines: list[Line]) -> tuple[str, list[float | None]]:
    """Return the unit of a training run's work, and how much of it every epoch was."""
    if output.format == "penstock-vectors":
        return "words", [amount(one.get("words")) for one in lines]
    trained = mapping(mapping(output.manifest.get("report")).get("trained"))
    edges = amount(output.report.get("edges", trained.get("edges")))
    if not edges:
        return "epochs", [1.0] * len(lines)
    layers = 1
    if output.format == "penstock-gnn":  # every layer gathers over all edges
        layers = len(mappings(mapping(output.manifest.get("model")).get("layers"))) or 1
    return "edges", [edges * layers] * len(lines)


def _chart(
    output: StageOutput, title: str, about: str, y: str, series: list[Series],
    epochs: list[float], columns: dict[str, list[float | None]],
) -> Chart:  # fmt: skip
    shown = [name for name in columns if any(one.name == name for one in series)]
    known = [i for i in range(len(epochs)) if any(columns[name][i] is not None for name in shown)]
    kept = [known[i] for i in thinned(len(known), _TABLE_ROWS)]
    rows = [
        (shown_number(epochs[i]), *(shown_number(columns[name][i]) for name in shown)) for i in kept
    ]
    some = "" if len(kept) == len(known) else f", {len(kept)} of {len(known):,} epochs"
    caption = f"{output.name}: {title} by epoch{some}"
    return Chart(
        "lines", f"{output.name}: {title}", about, "epoch", y, tuple(series),
        table(caption, ("Epoch", *shown), rows),
    )  # fmt: skip
