"""The paths that the stages of a flow write and publish: no two of these may overlap."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.paths import client_path

if TYPE_CHECKING:
    from penstock.pipelines.flow.document import Flow


def destination_of(target: str, home: Path) -> str:
    """Return the path or URL that a place's name means in a folder."""
    target = target.removeprefix("file://").removeprefix("local://")
    return target if "://" in target else str(client_path(home / Path(target).expanduser()))


def check_destinations(flow: Flow) -> None:
    """Refuse stages that write or publish to one path, or into each other's outputs."""
    runs = (flow.home / "runs").resolve()
    outputs = {name: flow.output(name).resolve() for name in flow.stages}
    for name, output in [("folder", flow.folder.resolve()), *outputs.items()]:
        if output == runs or runs in output.parents:
            raise UsageError(
                f"{flow.path}: {name} would write {output}, which holds the records of runs",
                remedy="Give the flow another folder:, or the stage another name",
            )
    _check_outputs(flow)
    closed = {"the records of runs": runs, "what the flow knows of outputs": flow.state.resolve()}
    closed |= {f"the output of stage {name}": output for name, output in outputs.items()}
    places: dict[Path, str] = {}
    for stage in flow.stages.values():
        for destination in map(flow.destination, stage.keys.publish):
            local = "://" not in destination
            path = Path(destination).resolve() if local else Path(os.path.normpath(destination))
            for other, name in places.items():
                if path == other or path in other.parents or other in path.parents:
                    raise UsageError(
                        f"{flow.path}: publish names {name} and {destination}, which are one "
                        "place, or one lies in the other",
                        remedy="Name another place for one of them",
                    )
            places[path] = destination
            for what, one in closed.items() if local else ():
                if path in (one, flow.folder.resolve()) or one in path.parents:
                    raise UsageError(
                        f"{flow.path}: stage {stage.name} would publish to {path}, "
                        f"which is or lies in {what}",
                        remedy="Name another place",
                    )


def _check_outputs(flow: Flow) -> None:
    """Refuse stages that write to one path, or one of them within what another writes.

    Names of stages differ, but two may cut one graph into the same number of parts, and a symbolic
    link of the user may lead from one output to another.
    """
    written = {name: path.resolve() for name in flow.stages if (path := flow.written(name))}
    for (one, path), (other, where) in itertools.permutations(written.items(), 2):
        stage = flow.stages[other]
        parts = stage.in_place and any(each.stage == one for each in stage.inputs)
        if path == where or (path in where.parents and not parts):
            raise UsageError(
                f"{flow.path}: stages {one} and {other} would write {path} and {where}, which are "
                "the same path, or one within the other",
                remedy="Leave one of them out, or give each its own output",
            )
