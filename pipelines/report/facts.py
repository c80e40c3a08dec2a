"""What the records of runs hold: this run, those of the same flow before it, what readers have.

What is not recorded of a run is left out of its page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.errors import PenstockError
from penstock.pipelines.flow.document.destinations import destination_of
from penstock.pipelines.flow.gates import parse_gate
from penstock.pipelines.flow.notify import last_read
from penstock.pipelines.flow.places import Place
from penstock.pipelines.flow.records import (
    ENDED_WELL,
    RunRecord,
    State,
    gates_of,
    older,
    shown_state,
)
from penstock.pipelines.flow.report import reason_of
from penstock.pipelines.report.content import Cell, Chart, Table, number, seconds, shown
from penstock.pipelines.report.outputs import StageOutput
from penstock.secrets import masked, unmasked

_TREND = 10  # runs whose values of a gate's metric are shown
_MOST_TRENDS = 12
_REMEDIES: dict[str, str] = {
    State.KILLED: "Run the flow again: it resumes",
    State.INTERRUPTED: "Run the flow again: it resumes",
    State.GATE_FAILED: "Nothing was published. Check what changed; if this is meant, run the flow "
    "again with --accept STAGE --reason WHY, or change expect:",
}


@dataclass(frozen=True)
class Facts:
    """A run among the runs of its flow.

    logs  the path of its logs from the page
    """

    run: RunRecord
    logs: str = "logs"

    @cached_property
    def older(self) -> list[RunRecord]:
        """Those before it."""
        return older(self.run)

    @property
    def before(self) -> RunRecord | None:
        """The last of them that passed; if none did, the last."""
        passed = [one for one in self.older if one.state == State.PASSED]
        return next(reversed(passed or self.older), None)


# Sections of the page, in their order


def failures(facts: Facts) -> Iterator[Table | str]:
    """Return what failed, why, and the remedy."""
    waited: dict[str, list[str]] = {}
    body = facts.run.body
    whole = {"the run": {"error": body["error"]}} if "error" in body else {}
    for name, stage in {**whole, **facts.run.stages}.items():
        state = stage.get("state")  # None: of the run
        if state in (*ENDED_WELL, State.RUNNING, State.NOT_CHOSEN):
            continue
        if state == State.NOT_RUN:
            waited.setdefault(stage["why"], []).append(name)
            continue
        error, what = stage.get("error", {}), reason_of(stage) or state
        if state == State.KILLED:
            what = "it ran when the process of the flow was killed"
        rows = [
            ("What", what),
            ("Expected", error.get("expected")),
            ("Got", error.get("got")),
            ("Remedy", error.get("remedy") or _REMEDIES.get(str(state))),
            ("Log", _log(facts, name) if state else None),
        ]
        yield Table(name, ("", ""), [row for row in rows if row[1]])
    for why, names in waited.items():
        yield f"Not run: {', '.join(names)}, as {why}."


def _log(facts: Facts, stage: str) -> Cell | None:
    there = (facts.run.folder / "logs" / f"{stage}.log").is_file()
    return Cell(f"{stage}.log", f"{facts.logs}/{quote(stage)}.log") if there else None


def readers(facts: Facts) -> Iterator[Table | str]:
    """Return what readers have: the publication that each place shows, its date, since when."""
    rows: list[tuple[Any, ...]] = []
    zone = dt.datetime.fromisoformat(facts.run.body["began"]).tzinfo
    for stage, target in _targets(facts):
        place, where = Place(destination_of(target, _home(facts.run))), masked(target)
        try:
            version = place.latest()
            if version is None or version not in place.versions():
                rows.append((stage, "nothing", "", "", where))
                continue
            since = place.since()
        except (PenstockError, OSError) as error:
            rows.append((stage, "unknown", "", masked(getattr(error, "got", None)), where))
            continue
        own = version[11:] == facts.run.name or None
        when = "" if since is None else f"{dt.datetime.fromtimestamp(since, zone):%Y-%m-%d %H:%M}"
        by = Cell("this run" if own else version[11:], good=own)
        rows.append((stage, Cell(version[:10], good=own), when, by, where))
    if rows:
        yield f"As of {dt.datetime.now(zone):%Y-%m-%d %H:%M}, when this page was written."
        heads = ("Output", "Of the date", "Since", "Published by", "Where")
        yield Table("What each place shows", heads, rows)


def _targets(facts: Facts) -> list[tuple[str, str]]:
    """Return stages and where they publish; if the file could not be read, as it last could be."""
    run: RunRecord | None = facts.run
    if "targets" not in facts.run.body:
        run = last_read(_home(facts.run) / Path(facts.run.body["file"]).name)
    listed = [] if run is None else run.body.get("targets", [])
    return [(stage, unmasked(target)) for stage, target in listed]


def _home(run: RunRecord) -> Path:
    return run.folder.absolute().parent.parent  # runs/ is beside the flow's file


def gates(facts: Facts) -> Iterator[Table | str]:
    """Return every gate with its threshold, and its metric over the last runs."""
    rows: list[tuple[Any, ...]] = []
    runs = [*facts.older[1 - _TREND :], facts.run]
    for name, stage in facts.run.stages.items():
        for gate in stage.get("gates", []):
            metric, met = gate["metric"], gate["met"]
            accepted = not met and "accepted" in stage
            values = [gate_value(run, name, metric) for run in runs]
            line = " → ".join("none" if one is None else shown(one) for one in values)
            note = "; ".join(
                filter(
                    None, [gate.get("note"), f"accepted: {stage['accepted']}" if accepted else ""]
                )
            )
            result = Cell("met" if met else "accepted" if accepted else "not met", good=met)
            rows.append((name, result, metric, gate["expected"], gate["value"], line, note))
    if not rows:
        return
    heads = ["Stage", "Gate", "Metric", "Expected", "Value", "Last runs, oldest first", "Note"]
    if not any(note for *_, note in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    yield Table("Gates, and their metrics over the last runs", heads, rows, open=True)
    trends = [trend(runs, key, own) for key, own in gates_of(facts.run).items()]
    yield from [one for one in trends if one][:_MOST_TRENDS]


def gate_value(run: RunRecord, stage: str, metric: str) -> float | None:
    """Return what the gate saw in that run, or else the metric of its full name."""
    for gate in run.stages.get(stage, {}).get("gates", []):
        if gate["metric"] == metric:
            return number(gate["value"])
    return number(run.metrics(stage).get(metric))


def trend(runs: list[RunRecord], of: tuple[str, str], gates: list[dict[str, Any]]) -> Table | None:
    """Return the line of a metric over the dates of runs, if it has at least two values."""
    stage, metric = of
    rows = [(run.date[5:], gate_value(run, stage, metric)) for run in runs]
    y = [value for _, value in rows if value is not None]
    if len(y) < 2:
        return None
    expected = [one["expected"] for one in gates]
    parsed = [parse_gate(metric, text) for text in expected]
    level = next((one.bounds[0] for one in parsed if one.kind == "compare"), None)
    near = 3 * (max(y) - min(y) or 0.1 * abs(max(y)))  # a far one would flatten the line
    if level is not None and not min(y) - near <= level <= max(y) + near:
        level = None
    about = " ".join(f"Expected {one}." for one in expected)
    about += " The dashed line is what it is compared with." if level is not None else ""
    chart = Chart("lines", "date", metric, level=level)
    return Table(f"{stage}: {metric}", ("Date", metric), rows, about, chart)


def changes(facts: Facts) -> Iterator[Table | str]:
    """Return the metrics that differ from the run before, those of gates first."""
    before = facts.before
    if before is None:
        yield "There is no earlier run to compare with."
        return
    was = f"{before.name} ({before.state})"
    found = changed_metrics(before, facts.run)
    if not found:
        compared = any(before.metrics(one) and facts.run.metrics(one) for one in facts.run.stages)
        yield f"No {'metric differs from' if compared else 'stage has metrics here and in'} {was}."
        return
    yield f"Compared with {was}."
    gated = gates_of(facts.run)

    def in_gate(stage: str, metric: str) -> bool:  # which may name the end of a metric's path
        return any(f".{metric}".endswith(f".{end}") for name, end in gated if name == stage)

    heads = ("Stage", "Metric", "Before", "Now")
    first = [one for one in found if in_gate(*one[:2])]
    others = [one for one in found if not in_gate(*one[:2])]
    if first:
        yield Table("Metrics of gates that changed", heads, first)
    if others:
        more = "other " if first else ""
        yield Table(f"{len(others)} {more}metrics that changed", heads, others)


def output(made: StageOutput) -> Iterator[Table]:
    """Return the numbers and words in an output's manifest and report."""
    every = {**made.manifest, **made.report}
    rows = [
        (name.replace("_", " "), one)
        for name, one in every.items()
        if isinstance(one, str | int | float)
    ]
    if rows:
        yield Table(f"{made.name}: manifest and report", ("Name", "Value"), rows)


def changed_metrics(one: RunRecord, other: RunRecord) -> list[tuple[str, str, Any, Any]]:
    """Return stage, metric and both values of the metrics that differ.

    Of stages that have metrics in both: what did not run has not changed.
    """
    both = [(stage, one.metrics(stage), other.metrics(stage)) for stage in other.stages]
    return [
        (stage, *each) for stage, then, now in both if then and now for each in _changed(then, now)
    ]


def _changed(then: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    pairs = [(key, then.get(key), now.get(key)) for key in {**then, **now}]
    return [each for each in pairs if str(each[1]) != str(each[2])]  # as text NaN is NaN


def differences(one: RunRecord, other: RunRecord) -> list[tuple[str, str, Any, Any]]:
    """Return stage (empty for the run), what, and both values of what differs between two runs."""
    found: dict[tuple[str, str], tuple[Any, Any]] = {}

    def compare(stage: str, kind: str, then: dict[str, Any], now: dict[str, Any]) -> None:
        for key, before, after in _changed(then, now):
            known = found.setdefault((stage, key), (before, after))
            found[stage, key if known == (before, after) else f"{kind} {key}"] = before, after

    def own(body: dict[str, Any], *keys: str) -> dict[str, Any]:
        return {key: body.get(key) for key in keys}

    both = one, other
    bodies = [{**run.body, "date": run.date} for run in both]
    compare("", "", *(own(body, "date", "state", "seconds") for body in bodies))
    for kind in ("variables", "versions"):
        compare("", kind[:-1], *(run.body.get(kind, {}) for run in both))
    for stage in {**one.stages, **other.stages}:
        compare(stage, "", *(own(run.stages.get(stage, {}), "state", "seconds") for run in both))
        then, now = (run.metrics(stage) for run in both)
        if then and now:
            compare(stage, "metric", then, now)
    return [(*key, *pair) for key, pair in found.items()]


def stages(facts: Facts) -> Iterator[Table | str]:
    """Return when each stage ran, as a timeline."""
    spans = {}
    for name, stage in facts.run.stages.items():
        begin, took = number(stage.get("began")), number(stage.get("seconds"))
        if begin is not None and took is not None:
            spans[name] = begin, took
    first = min((begin for begin, _ in spans.values()), default=0.0)
    whole = max((begin + took - first for begin, took in spans.values()), default=0.0) or 1.0
    rows = []
    for name, stage in facts.run.stages.items():
        begin, took = spans.get(name, (None, None))
        start, bar = None, Cell("")
        if begin is not None and took is not None:
            start = begin - first
            bar = Cell("", bar=(100 * start / whole, max(100 * took / whole, 0.3)))
        well = stage["state"] in (*ENDED_WELL, State.NOT_CHOSEN)
        log = _log(facts, name)
        rows.append(
            (
                Cell(name, log.href if log else ""),
                Cell(shown_state(stage["state"]), good=None if well else False),
                seconds(start),
                seconds(took),
                bar,
                stage.get("job"),
                stage.get("why"),
            )
        )
    heads = ("Stage", "State", "Began (s)", "Took (s)", "Timeline", "Job", "Why")
    if rows:
        yield Table("When each stage ran; its name leads to its log", heads, rows, open=True)
    else:
        yield "No stage is recorded."


def origin(facts: Facts) -> Iterator[Table | str]:
    """Return the host of the run, its file, variables and versions."""
    body = facts.run.body
    rows = [("host", body.get("host")), ("file", body.get("file"))]
    for kind in ("variables", "versions"):
        rows += body.get(kind, {}).items()
    yield Table("Host, file, variables and versions", ("What", "Which"), rows)
