"""The outputs of a run's stages, and the record of a job that ran without a flow.

The output of a stage belongs to the last run that made it. The page of an older run must not show
it as its own: an output counts only while the folder of the flow knows it by the run's key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.documents import read_record
from penstock.errors import UsageError
from penstock.pipelines.flow.records import RunRecord, State
from penstock.pipelines.flow.state import record_of
from penstock.run_output import RunState

# Manifests by name, in the order in which a folder is searched for them.
_MANIFESTS = (
    "run.json",
    "vectors.json",
    "graph.json",
    "partition.json",
    "centrality.json",
    "_walks.json",
    "_predictions.json",
    "_neighbours.json",
)
# Of a training run that no flow made.
_STATES: dict[str, str] = {
    RunState.TRAINING: State.RUNNING,
    RunState.DONE: State.PASSED,
    RunState.DIVERGED: State.FAILED,
}


@dataclass(frozen=True)
class StageOutput:
    """A stage, what it reported, and its output.

    at        path of its output; None: there is none, or a later run has replaced it
    manifest  content of the output's manifest; empty if there is none
    """

    name: str
    job: str
    state: str
    seconds: float | None
    report: dict[str, Any]
    at: Path | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def format(self) -> str:
        """The format of the output, as its manifest names it."""
        return str(self.manifest.get("format"))


def stage_outputs(run: RunRecord) -> list[StageOutput]:
    """Return every stage of a run with its output.

    What several stages name, as a graph that one makes and one cuts, is the first one's.
    """
    found: list[StageOutput] = []
    for name, stage in run.stages.items():
        at = Path(stage["out"]) if "out" in stage else None  # None: of a stage that was not run
        replaced = not run.body.get("single") and not record_of(run, name)
        if at is None or replaced or not at.is_dir() or at in [one.at for one in found]:
            at = None
        found.append(
            StageOutput(
                name,
                stage["job"],
                stage["state"],
                stage.get("seconds"),
                stage.get("report") or {},
                at,
                {} if at is None else manifest_of(at),
            )
        )
    return found


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the content of an output's manifest; an empty dict if there is none."""
    for name in _MANIFESTS:
        body = read_record(folder / name)
        kind = str(body.get("format"))
        if kind.startswith("penstock-") and kind != "penstock-run":
            return body
    return {}


def job_record(folder: Path) -> RunRecord:
    """Return a record, as of a flow of one stage, of a job that ran without a flow."""
    folder = folder.resolve()
    body = manifest_of(folder)
    if not body:
        raise UsageError(
            f"{folder} is neither a run of a flow nor the output of a job",
            expected=f"run.json of penstock run, or one of {', '.join(_MANIFESTS)}",
            remedy="Name a run that penstock runs list shows, or the output of a job",
        )
    state = str(body.get("state", State.PASSED))
    state = _STATES.get(state, state)
    stages = {folder.name: _stage(folder, body, state)}
    seconds = stages[folder.name]["seconds"]
    whole = {"state": state, "stages": stages, "single": True, "seconds": seconds}
    return RunRecord(folder, whole)


def _stage(folder: Path, body: dict[str, Any], state: str) -> dict[str, Any]:
    report = dict(body.get("report") or {})
    report |= {"seconds": report.get("seconds"), **(report.pop("trained", None) or {})}
    return {
        "job": str(body.get("format")).removeprefix("penstock-"),
        "out": str(folder),
        "state": State.DONE if state == State.PASSED else state,
        "report": report,
        "seconds": report["seconds"] if isinstance(report["seconds"], float) else None,
    }
