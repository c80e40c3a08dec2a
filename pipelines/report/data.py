"""The content of a run's page, from its record and those of earlier runs.

A record may be older, damaged or written by another hand: what has not the type that it should
have is left out, and nothing here raises because of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.pipelines.flow.records import (
    RunRecord,
    State,
    all_runs,
    began,
)
from penstock.pipelines.report.charts import MOST_ROWS
from penstock.pipelines.report.values import mappings, number, text

TREND = 10  # runs whose values of a gate's metric are shown


@dataclass(frozen=True)
class Trend:
    """A gate, and the values of its metric in the last runs, the oldest first."""

    stage: str
    metric: str
    expected: str
    value: float | None
    met: bool
    note: str
    values: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run.

    before  the last run of the same flow before it that passed; if none did, the last
    """

    run: RunRecord
    state: str
    before: RunRecord | None
    stages: dict[str, dict[str, Any]]
    gates: list[Trend]
    changes: list[tuple[str, str, float | None, float | None]]


def gather(run: RunRecord) -> RunFacts:
    """Return the content of a run's page."""
    older = [
        one for one in _runs_of_flow(run)
        if one.series == run.series and one.name != run.name
        and began(one) <= began(run)
    ]  # fmt: skip
    stages = stages_of(run)
    whole = [one for one in older if one.state == State.PASSED] or older
    before = whole[-1] if whole else None
    gates = [
        _trend(name, gate, [*older[-(TREND - 1) :], run])
        for name, stage in stages.items()
        for gate in mappings(stage.get("gates"))
    ]
    changes = _changes(run, before) if before else []
    return RunFacts(run, run.state, before, stages, gates[:MOST_ROWS], changes[:MOST_ROWS])


def _runs_of_flow(run: RunRecord) -> list[RunRecord]:
    """Return the runs of the same flow; a job that ran without a flow has none."""
    if run.body.get("single"):
        return []
    return all_runs(run.folder.absolute().parent, text(run.body.get("flow")))


def stages_of(run: RunRecord) -> dict[str, dict[str, Any]]:
    """Return the stages of a run that are recorded as such."""
    found = run.body.get("stages")
    if not isinstance(found, dict):
        return {}
    pairs = [(str(name), one) for name, one in found.items() if isinstance(one, dict)]
    return dict(pairs[:MOST_ROWS])


def metrics_of(run: RunRecord, stage: str) -> dict[str, float]:
    """Return the metrics of a stage that are numbers."""
    found = stages_of(run).get(stage, {}).get("metrics")
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): one for name, value in pairs if (one := number(value)) is not None}


def _trend(stage: str, gate: dict[str, Any], runs: list[RunRecord]) -> Trend:
    metric = text(gate.get("metric"))
    return Trend(
        stage, metric, text(gate.get("expected")), number(gate.get("value")),
        gate.get("met") is True, text(gate.get("note")),
        tuple((run.name, _gate_value(run, stage, metric)) for run in runs),
    )  # fmt: skip


def _gate_value(run: RunRecord, stage: str, metric: str) -> float | None:
    """Return what the gate saw in that run, or else the metric of its full name."""
    for gate in mappings(stages_of(run).get(stage, {}).get("gates")):
        if gate.get("metric") == metric:
            return number(gate.get("value"))
    return metrics_of(run, stage).get(metric)


def _changes(
    run: RunRecord, before: RunRecord
) -> list[tuple[str, str, float | None, float | None]]:
    """Return stage, metric, the value before and the value now of the metrics that changed.

    Of stages that have metrics in both: what did not run has not changed.
    """
    found = []
    for stage in stages_of(run):
        now, then = metrics_of(run, stage), metrics_of(before, stage)
        if not now or not then:
            continue
        for metric in dict.fromkeys([*then, *now]):
            one, other = then.get(metric), now.get(metric)
            both_nan = one is not None and other is not None and one != one and other != other
            if one != other and not both_nan:
                found.append((stage, metric, one, other))
    return found
