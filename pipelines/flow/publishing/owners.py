"""Whose outputs and destinations are: a flow replaces nothing that it has not made itself.

.<name>.published.json   next to a target: who published it, and which earlier ones were kept
published_by             the same in latest.json at a URL
by                       in <folder>/.flow/<stage>.json: who made the output of a stage

    error = output_problem(flow, state, "walks")   # None: the stage may write there
    error = target_problem(flow, state, "walks", destination, urls=False)
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from penstock.errors import OutputExists, PenstockError
from penstock.pipelines.flow.document import Flow, StageSpec
from penstock.pipelines.flow.publishing.known import Published
from penstock.pipelines.flow.publishing.targets import (
    LocalTarget,
    RemoteTarget,
    is_taken,
    read_record,
    target_of,
)
from penstock.pipelines.flow.records import same_file
from penstock.pipelines.flow.state import FlowState

Body = dict[str, Any]


def made_by(flow: Flow, run: str) -> Body:
    """Return the record of a thing's maker, which is kept with it."""
    return {"flow": flow.name, "file": str(flow.path.absolute()), "run": run,
            "host": platform.node(), "from_folder": _from_folder(flow)}  # fmt: skip


def output_problem(flow: Flow, state: FlowState, stage: str) -> PenstockError | None:
    """Return the error of a stage whose output would replace something that is not the flow's."""
    output = _written(flow, flow.stages[stage])
    if output is None:
        return None
    record = state.record(stage)
    if record is None:
        who = _around(flow, output)
        if who is not None:
            problem = f"in what {who}"
        elif is_taken(output):
            record = LocalTarget(str(output)).publisher()
            who = "" if record is None else f", published by {_named(record)}"
            problem = f"where something exists that this flow did not make{who}"
        else:
            return None
    else:
        by = record.get("by")
        if not isinstance(by, dict) or not _is_other_maker(flow, by):
            return None
        problem = f"which {_named(by)} made"
    return OutputExists(
        f"stage {stage} would write {output}, {problem}",
        expected="nothing, an empty folder, or what this flow has made there",
        remedy="Move it away, or give this flow another folder:, or the stage another name; "
        "or give --replace-outputs, with which the stage may replace it",
    )


def target_problem(
    flow: Flow, state: FlowState, stage: str, destination: str, *, urls: bool
) -> PenstockError | None:
    """Return the error of a destination at which there is what this flow has not published.

    urls  also check URLs, which may be out of reach before the end, when they must not be
    """
    target = target_of(destination, "")
    if isinstance(target, RemoteTarget):
        found = _taken_by(flow, state, target, destination) if urls else None
        then = "has latest.json name the new run"
        return None if found is None else _refused(stage, destination, found, then)
    then = "keeps it as .previous" if flow.keep else "removes it, as keep: is 0"
    if (found := _taken_by(flow, state, target, destination)) is not None:
        return _refused(stage, destination, found, then)
    if (who := _around(flow, target.target)) is not None:
        return _refused(stage, destination, f"in what {who}", "publishes there")
    record = target.publisher()
    kept = None if record is None else record.get("previous")
    ours = isinstance(kept, list) and not is_other_publisher(flow, state, destination)
    for name in target.previous_names(flow.keep):
        there = target.target.with_name(name)
        own = ours and kept is not None and name in kept
        if not own and (there.exists() or there.is_symlink()):
            return OutputExists(
                f"stage {stage} would publish to {destination}, and keep what was there before as "
                f"{there}, where something exists that this flow did not keep there",
                remedy="Move it away, or publish elsewhere; or give --replace-targets, "
                "which allows replacing it",
            )
    return None


def is_other_publisher(flow: Flow, state: FlowState, destination: str) -> bool:
    """Return whether another flow was the last to publish to a destination."""
    record = target_of(destination, "").publisher()
    return record is not None and _is_other_publisher(flow, state, destination, record)


def _refused(stage: str, destination: str, found: str, then: str) -> PenstockError:
    return OutputExists(
        f"stage {stage} would publish to {destination}, {found}",
        expected="nothing, an empty folder, or what this flow has published there",
        remedy=f"Move it away, or name another target; or give --replace-targets, which {then}",
    )


def _taken_by(
    flow: Flow, state: FlowState, target: LocalTarget | RemoteTarget, destination: str
) -> str | None:
    """Return what is at a destination that this flow may not replace, in words."""
    if not target.taken():
        return None
    record = target.publisher()
    if not Published(flow).owns(destination):
        who = "" if record is None else f", published by {_named(record)}"
        return f"where something exists already{who}"
    if record is not None and _is_other_publisher(flow, state, destination, record):
        return f"where {_named(record)} has published since"
    return None


def _is_other_publisher(flow: Flow, state: FlowState, destination: str, record: Body) -> bool:
    """Return whether a record next to a target is another flow's.

    A flow that was moved, or runs in a new container every day, knows the keys of its publications.
    """
    known = record.get("key") in Published(flow).keys(destination)
    return not known and _is_another(flow, record)


def _is_other_maker(flow: Flow, by: Any) -> bool:
    """Return whether the record of an output is another flow's that shares the folder.

    The folder and the flow may have been moved together.
    """
    if not isinstance(by, dict) or by.get("from_folder") == _from_folder(flow):
        return False
    file = by.get("file")
    if not isinstance(file, str) or same_file(file, str(flow.path)):
        return False
    if by.get("host") != platform.node():
        return True
    try:
        return Path(file).exists()  # else this flow was renamed
    except (OSError, ValueError):
        return False


def _is_another(flow: Flow, by: Body) -> bool:
    here = by.get("host") == platform.node()
    return not here or not same_file(by.get("file"), str(flow.path))


def _from_folder(flow: Flow) -> str:
    return os.path.relpath(os.path.realpath(flow.path), os.path.realpath(flow.folder))


def _written(flow: Flow, stage: StageSpec) -> Path | None:
    """Return the path that a stage replaces; None: nothing, or a part of another stage's output."""
    if stage.in_place and stage.inputs[0].stage is not None:
        return None
    return flow.written(stage.name)


def _around(flow: Flow, path: Path) -> str | None:
    """Return which other flow made what a path is or lies in, or publishes what it lies in."""
    whole = Path(os.path.realpath(path.parent), path.name)
    for path in (whole, *whole.parents[:-1]):
        record = read_record(path.parent / ".flow" / f"{path.name}.json")
        if record is not None and path.exists() and _is_other_maker(flow, record.get("by")):
            return f"{_named(record['by'])} made: {path}"
        record = None if path == whole else LocalTarget(str(path)).publisher()
        if record is not None and path.exists() and _is_another(flow, record):
            return f"{_named(record)} published: {path}"
    return None


def _named(record: Body) -> str:
    """Return who made something, as far as it is known."""
    text = f"the flow {record.get('flow')} ({record.get('file')}, run {record.get('run')}"
    here = record.get("host") in (None, platform.node())
    return f"{text})" if here else f"{text}, on {record.get('host')})"
