"""The outputs of a run's stages, and the record of a job that ran without a flow.

The output of a stage belongs to the last run that made it. The page of an older run must not show
it as its own: an output counts only while the folder of the flow knows it by the run's key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import UsageError
from penstock.pipelines.flow.records import RunRecord, State
from penstock.run_output import RunState

# Manifests by name, in the order in which a folder is searched for them.
_MANIFESTS = (
    "run.json", "vectors.json", "graph.json", "partition.json", "centrality.json",
    "_walks.json", "_predictions.json", "_neighbours.json",
)  # fmt: skip
# Of a training run that no flow made.
_STATES: dict[str, str] = {
    RunState.TRAINING: State.RUNNING, RunState.DONE: State.PASSED, RunState.DIVERGED: State.FAILED,
}  # fmt: skip


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
        at = _there(run, name, stage)
        if at in [one.at for one in found]:
            at = None
        report = stage.get("report")
        found.append(
            StageOutput(
                name, str(stage.get("job")), str(stage.get("state")), stage.get("seconds"),
                report if isinstance(report, dict) else {}, at,
                {} if at is None else manifest_of(at),
            )
        )  # fmt: skip
    return found


def _there(run: RunRecord, name: str, stage: dict[str, Any]) -> Path | None:
    """Return the path of a stage's output, if no later run has replaced it."""
    if not stage.get("out"):
        return None
    path = Path(str(stage["out"]))
    if run.body.get("single") and path.is_dir():
        return path
    known = _read(Path(str(run.body.get("folder"))) / ".flow" / f"{name}.json")
    return path if path.is_dir() and known.get("key") == stage.get("key", "") else None


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the content of an output's manifest; an empty dict if there is none."""
    for name in _MANIFESTS:
        body = _read(folder / name)
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
        "job": str(body.get("format")).removeprefix("penstock-"), "out": str(folder),
        "state": State.DONE if state == State.PASSED else state, "report": report,
        "seconds": report["seconds"] if isinstance(report["seconds"], float) else None,
    }  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        body = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}
