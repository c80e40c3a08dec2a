"""The page of a run: HTML whose every word from data is escaped, and that fetches nothing."""

from __future__ import annotations

import math
from typing import Any

from penstock.pipelines.flow.records import ENDED_WELL, State, shown_state
from penstock.pipelines.report.charts import MOST_ROWS, Chart, Section, Table
from penstock.pipelines.report.data import RunFacts
from penstock.pipelines.report.drawing import STYLE, Drawings
from penstock.pipelines.report.figures import sections, trend_charts
from penstock.pipelines.report.html import document, folded, safe, section, table
from penstock.pipelines.report.values import mappings, number, shown_number, text

_VERDICT: dict[str, str] = {
    State.PASSED: "Passed", State.FAILED: "Failed", State.INTERRUPTED: "Interrupted",
    State.RUNNING: "Still running", State.KILLED: "Killed",
}  # fmt: skip
_REMEDIES: dict[str, str] = {
    State.KILLED: "Run the flow again: it resumes",
    State.INTERRUPTED: "Run the flow again: it resumes",
    State.GATE_FAILED: "Nothing was published. Check what changed; change expect: if this is meant",
}
_FOLDED = 12  # rows: a longer table is folded


def page(facts: RunFacts) -> str:
    """Return the whole page."""
    drawings = Drawings()
    found = [
        _failures(facts), _changes(facts), _gates(facts, drawings), _published(facts),
        _timeline(facts),
        *(_figures(one, drawings) for one in sections(facts)), _about(facts),
    ]  # fmt: skip
    title = f"{_verdict(facts)}: {facts.run.name}"
    body = f"<header><h1>{safe(title)}</h1>{_summary(facts)}</header><main>{''.join(found)}</main>"
    return document(title, body, style=STYLE, scripts=drawings.scripts, data=drawings.data)


def _figures(found: Section, drawings: Drawings) -> str:
    """Return a section: charts side by side if there is room, tables below each other."""
    inner, charts = "", ""
    for part in found.parts:
        if isinstance(part, Chart):
            charts += drawings.html(part)
            continue
        inner += _grid(charts)
        charts = ""
        if isinstance(part, Table):
            shown = table(part.caption, part.heads, part.rows)
            inner += shown if len(part.rows) <= _FOLDED else folded(part.caption, shown)
        else:
            inner += f"<p>{safe(part)}</p>"
    return section(found.title, inner + _grid(charts))


def _grid(charts: str) -> str:
    return f'<div class="charts">{charts}</div>' if charts else ""


def _verdict(facts: RunFacts) -> str:
    return _VERDICT.get(facts.state, facts.state or "State unknown")


def _summary(facts: RunFacts) -> str:
    body, stages = facts.run.body, facts.stages.values()
    seconds = shown_number(body.get("seconds"))
    took = f" in {seconds} s" if seconds else ""
    good = "good" if facts.state == State.PASSED else "bad"
    if body.get("single"):
        jobs = ", ".join(dict.fromkeys(text(one.get("job")) for one in stages))
        return f'<p class="{good}"><strong>{safe(_verdict(facts))}{took}</strong></p>' + (
            f"<p>The output of {safe(jobs)}, in {safe(str(facts.run.folder))}.</p>"
        )
    counts = facts.run.stages_text()
    words = f"Flow {text(body.get('flow'))}, begun {text(body.get('began')) or 'at no known time'}"
    return (
        f'<p class="{good}"><strong>{safe(_verdict(facts))}{took}</strong></p>'
        f"<p>{safe(words)}: {safe(counts or 'no stages')}.</p>"
    )


def _changes(facts: RunFacts) -> str:
    if facts.run.body.get("single"):
        return ""
    if facts.before is None:
        return section("Since the last run", "<p>There is no earlier run to compare with.</p>")
    gated = {(gate.stage, gate.metric) for gate in facts.gates}
    rows: dict[bool, list[tuple[str, str, str, str]]] = {True: [], False: []}
    for stage, metric, then, now in facts.changes:
        # A gate may name the end of a metric's path.
        ends = {".".join(metric.split(".")[i:]) for i in range(metric.count(".") + 1)}
        in_gate = any((stage, end) in gated for end in ends)
        rows[in_gate].append((stage, metric, shown_number(then), shown_number(now)))
    was = safe(f"{facts.before.name} ({facts.before.state})")
    if not facts.changes:
        return section("Since the last run", f"<p>No metric differs from {was}.</p>")
    heads = ("Stage", "Metric", "Before", "Now")
    inner = f"<p>Compared with {was}.</p>"
    if rows[True]:
        inner += table("Metrics of gates that changed", heads, rows[True])
    if rows[False]:
        many = f"{len(rows[False])} {'other ' if rows[True] else ''}metrics that changed"
        inner += folded(many, table("Metrics that changed", heads, rows[False]))
    return section("Since the last run", inner)


def _failures(facts: RunFacts) -> str:
    """Return the failures, below each other: a narrow screen would hide a table's remedies."""
    found, waited = [], dict[str, list[str]]()
    whole = facts.run.body.get("error")
    named = [("the run", {"error": whole})] if isinstance(whole, dict) else []
    for name, stage in [*named, *facts.stages.items()]:
        if stage.get("state") in (*ENDED_WELL, State.RUNNING, State.NOT_CHOSEN):
            continue
        if stage.get("state") == State.NOT_RUN:
            waited.setdefault(text(stage.get("why")), []).append(name)
            continue
        error = stage.get("error")
        said: dict[str, Any] = error if isinstance(error, dict) else {}
        what = text(said.get("what")) or text(stage.get("why")) or text(stage.get("state"))
        if stage.get("state") == State.KILLED:
            what = "it ran when the process of the flow was killed"
        remedy = text(said.get("remedy")) or _REMEDIES.get(text(stage.get("state")), "")
        parts = {"What": what, "Expected": text(said.get("expected")),
                 "Got": text(said.get("got")), "Remedy": remedy}  # fmt: skip
        listed = "".join(f"<dt>{k}</dt><dd>{safe(v)}</dd>" for k, v in parts.items() if v)
        found.append(f"<h3>{safe(name)}</h3><dl>{listed}</dl>")
    for why, names in waited.items():
        because = f", as {why}" if why else ""
        found.append(f"<p>{safe('Not run: ' + ', '.join(names))}{safe(because)}.</p>")
    return section("Failures", "".join(found)) if found else ""


def _gates(facts: RunFacts, drawings: Drawings) -> str:
    rows = []
    for gate in facts.gates:
        values = " → ".join(shown_number(value) or "none" for _, value in gate.values)
        rows.append(
            (gate.stage, gate.metric, gate.expected, shown_number(gate.value) or "none",
             "met" if gate.met else "not met", values, gate.note)
        )  # fmt: skip
    if not rows:
        return ""
    heads = ("Stage", "Metric", "Expected", "Value", "Gate", "Last runs, oldest first", "Note")
    trends = "".join(drawings.html(chart) for chart in trend_charts(facts.gates))
    shown = table("Gates, and their metrics over the last runs", heads, rows)
    return section("Gates", shown + _grid(trends))


def _published(facts: RunFacts) -> str:
    rows = [
        (text(one.get("stage")), text(one.get("to")))
        for one in mappings(facts.run.body.get("published"))[:MOST_ROWS]
    ]
    if not rows:
        return ""
    return section("Published", table("Outputs and their targets", ("Stage", "Where"), rows))


def _timeline(facts: RunFacts) -> str:
    if facts.run.body.get("single"):
        return ""
    if not facts.stages:
        return section("Stages", "<p>No stage is recorded.</p>")
    spans = {name: _span(stage) for name, stage in facts.stages.items()}
    known = [span for span in spans.values() if span is not None]
    first = min((begin for begin, _ in known), default=0.0)
    whole = max((begin + took - first for begin, took in known), default=0.0) or 1.0
    rows, bars = [], []
    for name, stage in facts.stages.items():
        span = spans[name]
        begin, took = (span[0] - first, span[1]) if span else (0.0, 0.0)
        rows.append(
            (name, text(stage.get("job")), shown_state(text(stage.get("state"))),
             f"{begin:.3f}" if span else "", f"{took:.3f}" if span else "",
             text(stage.get("why")))
        )  # fmt: skip
        bars.append(
            '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect x="{100 * begin / whole:.3f}" width="{max(100 * took / whole, 0.3):.3f}" '
            'y="0" height="10"/></svg>'
            if span
            else ""
        )
    heads = ("Stage", "Job", "State", "Began (s)", "Took (s)", "Why")
    return section("Stages", table("When each stage ran", heads, rows, ("Timeline", bars)))


def _span(stage: dict[str, Any]) -> tuple[float, float] | None:
    begin, took = number(stage.get("began")), number(stage.get("seconds"))
    if begin is None or took is None or not (math.isfinite(begin) and math.isfinite(took)):
        return None
    return (begin, took) if took >= 0 else None


def _about(facts: RunFacts) -> str:
    body = facts.run.body
    if body.get("single"):
        return ""
    versions = body.get("versions")
    rows = [("host", text(body.get("host"))), ("file", text(body.get("file")))]
    rows += [(str(k), text(v)) for k, v in versions.items()] if isinstance(versions, dict) else []
    return section("Where it ran", table("Host, file and versions", ("What", "Which"), rows))
