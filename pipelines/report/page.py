"""The page of a run: one file, whose every word from data is escaped, and that fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from penstock.pipelines.flow.records import RunRecord, State
from penstock.pipelines.report import drawing, facts
from penstock.pipelines.report.content import MOST_ROWS, Cell, Section, Table, number, shown
from penstock.pipelines.report.embeddings import embeddings
from penstock.pipelines.report.evaluation import evaluation
from penstock.pipelines.report.facts import Facts
from penstock.pipelines.report.outputs import StageOutput, stage_outputs
from penstock.pipelines.report.times import times
from penstock.pipelines.report.training import training

_SIGN = re.compile(r"(?<=[./:_])(?=[^\W\d])")  # after which a long name may end a line
_MOST_CHARTS = 16  # of one section: the rest of a flow of a hundred training runs has its tables


def sections(run: Facts) -> list[Section]:
    """Return the sections of a run's page that have content."""
    outputs = stage_outputs(run.run)
    exported = [one.manifest.get("run") for one in outputs if one.format == "penstock-vectors"]
    pictured = [one for one in outputs if str(one.at) not in exported]  # once is enough
    of_flow = [] if run.run.body.get("single") else [run]
    made = [
        _section("Failures", facts.failures, [run]),
        _section("What readers have", facts.readers, of_flow),
        _section("Gates", facts.gates, of_flow),
        _section("Since the last run", facts.changes, of_flow),
        _section("Stages", facts.stages, of_flow),
        _section("Output", facts.output, [] if of_flow else outputs),
        _section("Training", training, outputs),
        _section("Where the time went", times, [outputs]),
        _section("Evaluation", evaluation, outputs),
        _section("Embeddings", embeddings, pictured),
        _section("Where it ran", facts.origin, of_flow),
    ]
    return [one for one in made if one.parts]


def _section(title: str, build: Callable[[Any], Iterable[Table | str]], of: list[Any]) -> Section:
    """Build a section stage by stage; what cannot be read is named, and leaves the others."""
    parts: list[Table | str] = []
    for one in of:
        try:
            parts += build(one)
        except Exception as error:
            # The page describes a run, even if its outputs have changed since: they may be removed,
            # half-written or damaged in any way, and each reader has its own errors.
            name = f"{one.name}: " if isinstance(one, StageOutput) else ""
            parts.append(f"{name}nothing to show, {error or type(error).__name__}")
    return Section(title, parts)


def page(run: RunRecord, logs: str = "logs") -> str:
    """Return the whole page of a run.

    logs  the path of the run's logs from the page
    """
    body, known = run.body, Facts(run, logs)
    verdict = "Still running" if run.state == State.RUNNING else run.state.capitalize()
    took = f" in {shown(run.seconds)} s" if run.seconds else ""
    gates = [gate["met"] for one in run.stages.values() for gate in one.get("gates", [])]
    if body.get("single"):
        (stage,) = run.stages.values()
        about = [f"The output of {stage['job']}, in {run.folder}"]
    else:
        begun = body["began"][:16].replace("T", " ")
        about = [
            f"Flow {body['flow']} of {run.date}",
            f"Begun {begun}",
            f"Stages: {run.stages_text() or 'none'}",
        ]
    if gates:
        about.append(f"Gates: {sum(gates)} of {len(gates)} met")
    good = run.state == State.PASSED
    return document(f"{verdict}: {run.name}", sections(known), [f"{verdict}{took}", *about], good)


def document(
    title: str, found: list[Section], summary: Iterable[str] = (), good: bool = True
) -> str:
    """Return a page of some sections.

    summary  lines below the title; the first is the verdict
    """
    items: list[Any] = []
    places: dict[int, str] = {}
    for section in found:
        charts = [part for part in section.parts if isinstance(part, Table) and _drawable(part)]
        for chart in charts[:_MOST_CHARTS]:
            places[id(chart)] = f"chart-{len(items) + 1}"
            items.append(drawing.item(chart, places[id(chart)]))
    scripts = [drawing.library(), drawing.SCRIPT] if items else []
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    text = _template().render(
        title=title,
        sections=found,
        summary=summary,
        good=good,
        scripts=scripts,
        items=items,
        places=places,
        digests=digests,
    )
    return str(text.encode("utf-8", "replace").decode())


def _drawable(table: Table) -> bool:
    """Return whether a table has a chart, and numbers for it."""
    if table.chart is None:
        return False
    first = 1 + table.chart.skip
    numbers = (number(value) for row in table.rows for value in row[first:])
    return bool(table.chart.points) or any(one is not None for one in numbers)


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters |= {"shown": shown, "place": id, "pieces": _SIGN.split}
    made.globals |= {"legend": drawing.legend, "height": drawing.height, "most": MOST_ROWS}
    made.tests |= {
        "text": lambda one: isinstance(one, str),
        "cell": lambda one: isinstance(one, Cell),
    }
    # Sorted keys would put what BokehJS refers to after its references.
    made.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    return made.get_template("page.html")
