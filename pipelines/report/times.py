"""Where the time of a run went: starting, computing, waiting for communication and I/O.

Of those two only the exposed part costs time: in the hidden part something was computed.
A job's parts are what it reports; its process starts before and ends after what it measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.pipelines.report.content import Chart, Table, number, seconds
from penstock.pipelines.report.outputs import StageOutput
from penstock.pipelines.report.training import epoch_lines

_KINDS = (
    "start and end",
    "computing",
    "exposed communication",
    "exposed I/O",
    "steps of the job",
    "the rest of the job",
)
_MOST_BARS = 40


def times(outputs: list[StageOutput]) -> Iterator[Table]:
    """Return how long the stages took, by kind."""
    ran = [one for one in outputs if one.state != "skipped" and one.seconds]
    splits = [(one, split_time(one)) for one in ran]
    if any(len(split) > 1 for _, split in splits):  # else the timeline shows everything
        kinds = [kind for kind in _KINDS if any(kind in split for _, split in splits)]
        yield _bars(
            "Stages",
            ("Stage", "All", *kinds),
            [(one.name, one.seconds, *map(split.get, kinds)) for one, split in splits],
            "Seconds of every stage that ran. Start and end: the process of the stage before and "
            "after the job measures itself. Exposed: what was waited for. Communication is that of "
            "the first rank.",
            skip=1,
        )
    if hidden := [row for one in ran for row in _overlaps(one)]:
        heads = ("What", "Exposed", "Hidden")
        yield _bars(
            "Exposed and hidden",
            heads,
            hidden,
            "Seconds of communication (in an epoch, measured) "
            "and I/O (of the training): exposed is the waiting time, hidden is what ran while "
            "something was computed.",
        )
    if steps := [(f"{one.name}: {step}", took) for one in ran for step, took in _steps(one)]:
        yield _bars(
            "Steps within jobs",
            ("Stage and step", "Seconds"),
            steps,
            "What the steps took that a job times itself, one after another or side by side.",
        )


def _bars(title: str, heads: Any, rows: list[Any], about: str, skip: int = 0) -> Table:
    rows = [(name, *map(seconds, took)) for name, *took in rows[:_MOST_BARS]]
    return Table(title, heads, rows, about, Chart("bars", "seconds", skip=skip))


def split_time(output: StageOutput) -> dict[str, float]:
    """Return the seconds of a stage by kind; together they are the stage's."""
    whole = output.seconds or 0.0
    own = number(output.report.get("seconds"))
    if own is None:  # of a stage that failed, or of a job without a flow
        own = whole
    if own > whole:  # a training that resumes reports the seconds of all epochs
        return {"the rest of the job": whole}
    found, left = {"start and end": whole - own}, own
    for kind, took in _known(output).items():
        found[kind] = min(took, left)  # ranks and threads side by side do not make a stage longer
        left -= found[kind]
    found["the rest of the job"] = left
    return {kind: took for kind, took in found.items() if took > 0}


def _known(output: StageOutput) -> dict[str, float]:
    """Return the seconds that a job reports, by kind."""
    lines, report = epoch_lines(output), output.report
    if output.format == "penstock-gnn":
        spent = {
            kind: sum(one["kinds"][kind] for one in lines if "kinds" in one)
            for kind in ("compute", "halo", "gradient")
        }
        waited = spent["halo"] + spent["gradient"]
        return {"computing": spent["compute"], "exposed communication": waited}
    if output.format == "penstock-embed":
        computing = sum(one["seconds"] * min(one.get("utilization") or 0, 1) for one in lines)
        return {"computing": computing, "exposed I/O": report.get("exposed_seconds") or 0.0}
    if "train_seconds" in report:
        return {"computing": report["train_seconds"]}
    return {"steps of the job": sum(took for _, took in _steps(output))}


def _steps(output: StageOutput) -> list[tuple[str, float]]:
    """Return the steps that a job times."""
    # partition calls them "seconds"
    steps = output.report.get("seconds_by_step") or output.report.get("seconds")
    return list(steps.items()) if isinstance(steps, dict) else []


def _overlaps(output: StageOutput) -> Iterator[tuple[str, float, float]]:
    """Return the overlapped work: its name, exposed and hidden seconds."""
    report = output.report
    if overlap := report.get("overlap"):
        exposed, whole = overlap["exposed"][1], overlap["whole"][1]  # medians
        yield f"{output.name}: communication", exposed, max(whole - exposed, 0.0)
    moved = report.get("bytes_read", 0) + report.get("bytes_written", 0)
    if moved and report.get("bandwidth"):
        whole = moved / report["bandwidth"]  # in which at least one request was in flight
        waited = min(report["exposed_seconds"], whole)
        yield f"{output.name}: I/O", waited, whole - waited
