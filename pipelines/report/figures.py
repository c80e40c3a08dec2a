"""The sections of charts and tables of a run's page, from the reports and outputs of its stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from penstock.pipelines.report.charts import Chart, Section, Series, Table, finite, table
from penstock.pipelines.report.data import RunFacts, Trend
from penstock.pipelines.report.sections.embeddings import embedding_section
from penstock.pipelines.report.sections.evaluations import evaluation_section
from penstock.pipelines.report.sections.graphs import degree_section, partition_section
from penstock.pipelines.report.sections.outputs import StageOutput, stage_outputs
from penstock.pipelines.report.sections.times import times_section
from penstock.pipelines.report.sections.training import training_section
from penstock.pipelines.report.values import shown_number, text

_MOST_CHARTS = 16  # of one section: the rest of a flow of a hundred training runs has its tables
_MOST_TRENDS = 12

Builder = Callable[[Iterable[StageOutput]], Section | None]


def trend_charts(gates: list[Trend]) -> list[Chart]:
    """Return a line for the metric of every gate that has at least two values in the last runs."""
    by_metric: dict[tuple[str, str], list[Trend]] = {}
    for gate in gates:
        by_metric.setdefault((gate.stage, gate.metric), []).append(gate)
    charts = [chart for found in by_metric.values() if (chart := _trend(found)) is not None]
    return charts[:_MOST_TRENDS]


def _trend(gates: list[Trend]) -> Chart | None:
    """Return the line of a metric, which may have several gates."""
    gate = gates[0]
    first = 1 - len(gate.values)
    x, y = finite(range(first, 1), [value for _, value in gate.values])
    if len(x) < 2:
        return None
    rows = [(name, shown_number(value) or "none") for name, value in gate.values]
    levels = [re.fullmatch(r"(?:>=|<=|>|<|==)\s*([-+.\deE]+)", one.expected) for one in gates]
    level = next((one for one in levels if one is not None), None)
    try:
        bound = float(level[1]) if level else None
    except ValueError:
        bound = None
    near = 3 * (max(y) - min(y) or 0.1 * abs(max(y)))  # a far one would flatten the line
    if bound is not None and not min(y) - near <= bound <= max(y) + near:
        bound = None
    line = "; the dashed line is what it is compared with" if bound is not None else ""
    return Chart(
        "lines", f"{gate.stage}: {gate.metric}",
        " ".join(f"Expected {one.expected}: {'met' if one.met else 'not met'}." for one in gates)
        + f" The last {len(gate.values)} runs, this one at 0{line}.",
        "run", gate.metric, (Series(gate.metric, tuple(x), tuple(y)),),
        table(f"{gate.stage}: {gate.metric} in the last runs", ("Run", "Value"), rows),
        level=bound,
    )  # fmt: skip


def sections(facts: RunFacts) -> list[Section]:
    """Return the sections of figures that a run has; an unreadable output is named, not raised."""
    outputs = stage_outputs(facts.run, facts.stages)
    exported = {text(one.manifest.get("run")) for one in outputs
                if one.format == "penstock-vectors"}  # fmt: skip
    pictured = [one for one in outputs if str(one.at) not in exported]  # once is enough
    every: list[tuple[str, Builder, list[StageOutput]]] = [
        ("Training", training_section, outputs),
        ("Evaluation", evaluation_section, outputs),
        ("Embeddings", embedding_section, pictured),
        ("Partitions", partition_section, outputs),
        ("Degrees", degree_section, outputs),
    ]
    found = [_of_each(title, build, some) for title, build, some in every]
    found.insert(1, _guarded("Where the time went", times_section, outputs))
    return [one for one in found if one is not None]


def _of_each(title: str, build: Builder, outputs: list[StageOutput]) -> Section | None:
    """Build a section stage by stage, so that one damaged output leaves the others."""
    parts: list[Chart | Table | str] = []
    left = 0
    for one in outputs:
        made = _guarded(title, build, [one])
        for part in made.parts if made is not None else ():
            if isinstance(part, Chart) and sum(isinstance(p, Chart) for p in parts) >= _MOST_CHARTS:
                left += 1
                parts.append(part.table)
            else:
                parts.append(part)
    if left:
        parts.append(f"Of {left} more figures the numbers are shown.")
    return Section(title, tuple(parts)) if parts else None


def _guarded(title: str, build: Builder, outputs: list[StageOutput]) -> Section | None:
    try:
        return build(outputs)
    except Exception as error:
        # The page describes a run, even if its outputs have changed since: they may be removed,
        # half-written or damaged in any way, and each reader has its own errors.
        names = ", ".join(one.name for one in outputs[:3])
        return Section(title, (f"{names}: nothing to show, {error or type(error).__name__}",))
