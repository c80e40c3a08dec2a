"""Where the time of a run went: starting, computing, waiting for communication and I/O.

Of those two only the exposed part costs time: in the hidden part something was computed.
A job's parts are what it reports; its process starts before and ends after what it measures.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.pipelines.flow.records import State
from penstock.pipelines.report.charts import Chart, Section, Series, table
from penstock.pipelines.report.sections.outputs import StageOutput
from penstock.pipelines.report.sections.training import epoch_lines
from penstock.pipelines.report.values import amount, mapping, shown_seconds, text

_KINDS = (
    "start and end", "computing", "exposed communication", "exposed I/O", "steps of the job",
    "the rest of the job",
)  # fmt: skip
_MOST_BARS = 40


def times_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return the section about the time of the stages."""
    ran = [one for one in outputs if one.state != State.SKIPPED and one.seconds]
    parts: list[Chart] = []
    if any(len(split_time(one)) > 1 for one in ran):  # else the timeline shows everything
        parts.append(_stages(ran))
    hidden = [pair for one in ran for pair in _overlaps(one)]
    if hidden:
        parts.append(_hidden(hidden))
    steps = [row for one in ran for row in _steps(one)]
    if steps:
        parts.append(_bars(
            "Steps within jobs", "What the steps took that a job times itself, one after another "
            "or side by side.", steps, ("Stage and step", "Seconds"),
        ))  # fmt: skip
    return Section("Where the time went", tuple(parts)) if parts else None


def split_time(output: StageOutput) -> dict[str, float]:
    """Return the seconds of a stage by kind; together they are the stage's."""
    whole = output.seconds or 0.0
    own = amount(output.report.get("seconds"))
    if own is None or own > whole:  # of a stage that failed, or of a job without a flow
        own = whole
    found = {"start and end": whole - own}
    left = own
    for kind, seconds in _known(output).items():
        taken = min(seconds, left)  # ranks and threads side by side do not make a stage longer
        left -= taken
        found[kind] = found.get(kind, 0.0) + taken
    found["the rest of the job"] = left
    return {kind: seconds for kind, seconds in found.items() if seconds > 0}


def _known(output: StageOutput) -> dict[str, float]:
    """Return the seconds that a job reports, by kind."""
    lines, report = epoch_lines(output), output.report
    if output.format == "penstock-gnn":
        kinds = [mapping(one.get("kinds")) for one in lines]
        compute, halo, gradient = (
            sum(amount(one.get(name)) or 0.0 for one in kinds)
            for name in ("compute", "halo", "gradient")
        )
        return {"computing": compute, "exposed communication": halo + gradient}
    if output.format == "penstock-embed":
        took = [(amount(one.get("seconds")) or 0.0, amount(one.get("utilization")) or 0.0)
                for one in lines]  # fmt: skip
        computing = sum(seconds * min(share, 1.0) for seconds, share in took)
        exposed = amount(report.get("exposed_seconds")) or 0.0
        return {"computing": computing, "exposed I/O": exposed}
    if output.format == "penstock-vectors":
        return {"computing": amount(report.get("train_seconds")) or 0.0}
    steps = [seconds for _, seconds in _steps(output)]
    return {"steps of the job": sum(steps)}


def _steps(output: StageOutput) -> list[tuple[str, float]]:
    """Return the steps that a job times, named after the stage."""
    report = output.report  # partition reports "seconds"
    found = map(mapping, map(report.get, ("seconds_by_step", "seconds")))
    steps: dict[str, Any] = next(filter(None, found), {})
    return [
        (f"{output.name}: {step}", seconds)
        for step, value in steps.items()
        if (seconds := amount(value)) is not None
    ]


def _overlaps(output: StageOutput) -> list[tuple[str, float, float, str]]:
    """Return the overlapped work: its name, exposed and hidden seconds, and their source."""
    found = []
    overlap = mapping(output.report.get("overlap"))
    exposed, whole = _median(overlap.get("exposed")), _median(overlap.get("whole"))
    if exposed is not None and whole is not None:
        name = f"{output.name}: communication"
        found.append((name, exposed, max(whole - exposed, 0.0), "an epoch, measured"))
    moved = sum(amount(output.report.get(name)) or 0.0 for name in ("bytes_read", "bytes_written"))
    rate, waited = (amount(output.report.get(name)) for name in ("bandwidth", "exposed_seconds"))
    if moved and rate and waited is not None:
        whole = moved / rate  # in which at least one request was in flight
        name = f"{output.name}: I/O"
        found.append((name, min(waited, whole), max(whole - waited, 0.0), "training"))
    return found


def _median(quartiles: Any) -> float | None:
    if not isinstance(quartiles, list | tuple) or len(quartiles) != 3:
        return None
    return amount(quartiles[1])


def _stages(ran: list[StageOutput]) -> Chart:
    times = [(one, split_time(one)) for one in ran]
    kinds = [kind for kind in _KINDS if any(kind in split for _, split in times)]
    rows = [
        (one.name, shown_seconds(one.seconds), *(shown_seconds(split.get(kind)) for kind in kinds))
        for one, split in times
    ]
    drawn = times[:_MOST_BARS]
    return Chart(
        "bars", "Stages",
        "Seconds of every stage that ran. Start and end: the process of the stage before and after "
        "the job measures itself. Exposed: what was waited for. Communication is "
        "that of the first rank.",
        "seconds", "",
        tuple(Series(kind, tuple(split.get(kind, 0.0) for _, split in drawn)) for kind in kinds),
        table("Seconds of the stages", ("Stage", "All", *kinds), rows),
        categories=tuple(one.name for one, _ in drawn),
    )  # fmt: skip


def _hidden(found: list[tuple[str, float, float, str]]) -> Chart:
    rows = [
        (name, shown_seconds(exposed), shown_seconds(hidden),
         f"{100 * hidden / (exposed + hidden):.0f} %" if exposed + hidden else "", text(of))
        for name, exposed, hidden, of in found
    ]  # fmt: skip
    drawn = found[:_MOST_BARS]
    return Chart(
        "bars", "Exposed and hidden",
        "Seconds of communication and I/O: exposed is the waiting time, hidden is what ran "
        "while something was computed.",
        "seconds", "",
        (Series("exposed", tuple(one[1] for one in drawn)),
         Series("hidden", tuple(one[2] for one in drawn))),
        table("Exposed and hidden seconds", ("What", "Exposed", "Hidden", "Hidden share", "Of"),
              rows),
        categories=tuple(one[0] for one in drawn),
    )  # fmt: skip


def _bars(
    title: str, about: str, values: list[tuple[str, float]], heads: tuple[str, str]
) -> Chart:  # fmt: skip
    drawn = values[:_MOST_BARS]
    return Chart(
        "bars", title, about, heads[1].lower(), "",
        (Series(heads[1].lower(), tuple(value for _, value in drawn)),),
        table(title, heads, [(name, shown_seconds(value)) for name, value in values]),
        categories=tuple(name for name, _ in drawn),
    )  # fmt: skip
