"""The paths of the outputs of a run's stages, and the record of a job that ran without a flow.

The output of a stage belongs to the last run that made it. The page of an older run must not show
it as its own: an output counts only while the folder of the flow knows it by the run's key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import UsageError
from penstock.pipelines.flow.records import RunRecord, State
from penstock.pipelines.report.values import amount, mapping, text
from penstock.run_output import RunState

# Manifests by name, in the order in which a folder is searched for them.
_MANIFESTS = (
    "run.json", "vectors.json", "graph.json", "partition.json", "centrality.json",
    "_walks.json", "_predictions.json", "_neighbours.json",
)  # fmt: skip
_JOBS = {
    "penstock-gnn": "gnn train", "penstock-embed": "embed train", "penstock-vectors": "vectors",
    "penstock-graph": "graph", "penstock-partition": "partition",
    "penstock-centrality": "centrality", "penstock-walks": "walk",
    "penstock-predictions": "gnn predict", "penstock-neighbours": "similar",
}  # fmt: skip
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
        return text(self.manifest.get("format"))


def stage_outputs(run: RunRecord, stages: dict[str, dict[str, Any]]) -> list[StageOutput]:
    """Return every stage of a run with its output.

    What several stages name, as a graph that one makes and one cuts, is the first one's.
    """
    found: list[StageOutput] = []
    taken: set[Path] = set()
    for name, stage in stages.items():
        at = _there(run, name, stage)
        if at is not None and at in taken:
            at = None
        elif at is not None:
            taken.add(at)
        found.append(
            StageOutput(
                name, text(stage.get("job")), text(stage.get("state")),
                amount(stage.get("seconds")), mapping(stage.get("report")), at,
                {} if at is None else manifest_of(at),
            )
        )  # fmt: skip
    return found


def _there(run: RunRecord, name: str, stage: dict[str, Any]) -> Path | None:
    """Return the path of a stage's output, if no later run has replaced it."""
    out, key = stage.get("out"), stage.get("key")
    if not isinstance(out, str) or "\0" in out:
        return None
    path = Path(out)
    if run.body.get("format") is None:  # a job without a flow: its record was made from the output
        return path
    folder = run.body.get("folder")
    if not isinstance(folder, str) or Path(name).name != name or not path.is_dir():
        return None
    for ending in ("json", "started"):
        known = _read(Path(folder) / ".flow" / f"{name}.{ending}")
        if known and key is not None and known.get("key") == key:
            return path
    return None


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the content of our output's manifest; an empty dict if there is none."""
    for name in _MANIFESTS:
        body = _read(folder / name)
        if body and body.get("format") in _JOBS:
            return body
    return {}


def job_record(folder: Path) -> RunRecord:
    """Return a record, as of a flow of one stage, of a job that ran without a flow."""
    body = manifest_of(folder)
    if not body:
        raise UsageError(
            f"{folder} is neither a run of a flow nor the output of a job",
            expected=f"run.json of penstock run, or one of {', '.join(_MANIFESTS)}",
            remedy="Name a run that penstock runs list shows, or the output of a job",
        )
    name = folder.resolve().name
    state = _STATES.get(text(body.get("state")), text(body.get("state")) or State.PASSED)
    stages = {name: _stage(folder, body, state)}
    if body["format"] == "penstock-graph":
        for part in _partitions(folder):
            stages[f"{name}/{part.parent.name}/{part.name}"] = _stage(
                part, manifest_of(part), State.PASSED
            )
    whole = {"flow": None, "state": state, "stages": stages, "single": True,
             "file": None, "seconds": _results(body).get("seconds")}  # fmt: skip
    return RunRecord(folder.resolve(), whole)


def _partitions(graph: Path) -> Iterator[Path]:
    for file in sorted((graph / "partition").glob("k*/partition.json"))[:20]:
        if manifest_of(file.parent):
            yield file.parent


def _stage(folder: Path, body: dict[str, Any], state: str) -> dict[str, Any]:
    job = text(body.get("made_by")).removeprefix("penstock ")
    if body["format"] != "penstock-vectors" or not job:
        job = _JOBS[text(body.get("format"))]
    return {
        "job": job, "state": State.DONE if state == State.PASSED else state,
        "out": str(folder.resolve()),
        "report": _results(body), "seconds": _results(body).get("seconds"),
    }  # fmt: skip


def _results(body: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a manifest that a report would have."""
    if body.get("format") == "penstock-partition":
        return body | {"arcs": body.get("edges"), "seconds": None,
                       "seconds_by_step": body.get("seconds")}  # fmt: skip
    trained = mapping(mapping(body.get("report")).get("trained"))
    return trained | {
        key: body[key] for key in ("graph", "task", "rows", "dimension", "words", "nodes", "edges")
        if not trained and key in body
    }  # fmt: skip


def _read(path: Path) -> dict[str, Any] | None:
    try:
        body = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return mapping(body)
