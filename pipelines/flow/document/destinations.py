"""The paths that the stages of a flow write and publish: no two of these may overlap."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.pipelines.flow.publishing.targets import LocalTarget

if TYPE_CHECKING:
    from penstock.pipelines.flow.document import Flow, StageSpec


def check_destinations(flow: Flow) -> None:
    """Refuse stages whose outputs, or whose destinations, are one path or lie in each other.

    What is at a destination is moved aside and, a few runs later, removed: the flow itself, its
    inputs, outputs and runs must not be in it.
    """
    runs = (flow.home / "runs").resolve()
    outputs = {name: flow.output(name).resolve() for name in flow.stages}
    for name, output in [("folder", flow.folder.resolve()), *outputs.items()]:
        if output == runs or runs in output.parents:
            raise UsageError(
                f"{flow.path}: {name} would write {output}, which holds the records of runs",
                remedy="Give the flow another folder:, or the stage another name",
            )
    closed = (runs, flow.folder.resolve() / ".flow", *outputs.values())
    needed = {"the flow itself": flow.path, "the flow's folder": flow.folder,
              "the records of runs": runs, "what the flow knows of outputs": closed[1]}  # fmt: skip
    needed |= {f"the output of stage {name}": output for name, output in outputs.items()}
    for stage in flow.stages.values():
        outside = [one.path for one in stage.inputs if one.stage is None and "://" not in one.path]
        needed |= {f"the input {one}": Path(one) for one in outside}
    _check_outputs(flow)
    destinations: dict[Path, str] = {}
    for stage in flow.stages.values():
        for target in stage.publish:
            destination = flow.destination(target)
            used = _used_by(destination, flow.keep)
            for what, path in needed.items() if "://" not in destination else ():
                for one in used:
                    within = path in closed and (path == one or path in one.parents)
                    if one == path.resolve() or one in path.resolve().parents or within:
                        raise UsageError(
                            f"{flow.path}: stage {stage.name} would publish to {used[0]}"
                            f"{'' if one == used[0] else f', and keep the old output as {one}'}, "
                            f"which {'lies in' if within else 'is or holds'} {what}",
                            remedy="Name another target: the existing files would be replaced",
                        )
            for (other, name), one in itertools.product(destinations.items(), used):
                if _meet(one, other):
                    raise UsageError(
                        f"{flow.path}: publish names {name} and {target}, which are the same "
                        "path, or one within the other, or the other's previous output",
                        remedy="Name another target for one of them",
                    )
            destinations |= dict.fromkeys(used, target)


def _used_by(destination: str, keep: int) -> list[Path]:
    """Return the paths that publishing writes: the destination, and that of the previous output."""
    if "://" in destination:
        return [Path(os.path.normpath(destination))]
    whole = Path(destination).resolve()
    if not whole.name:  # the root, which holds all that is needed
        return [whole]
    return [whole, *map(whole.with_name, LocalTarget(str(whole)).previous_names(keep))]


def _meet(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def _check_outputs(flow: Flow) -> None:
    """Refuse stages that write to one path, or one of them within what another writes.

    Names of stages differ, but two may cut one graph into the same number of parts, and a symbolic
    link of the user may lead from one output to another.
    """
    written = {name: path.resolve() for name in flow.stages if (path := flow.written(name))}
    for (one, path), (other, where) in itertools.combinations(written.items(), 2):
        ends = [flow.stages[name] for name in (one, other)]
        inside = any(stage.in_place and _reads(stage, name) and path != where
                     for stage, name in zip(ends, (other, one), strict=True))  # fmt: skip
        if _meet(path, where) and not inside:
            raise UsageError(
                f"{flow.path}: stages {one} and {other} would write {path} and {where}, which are "
                "the same path, or one within the other",
                remedy="Leave one of them out, or give each its own output",
            )


def _reads(stage: StageSpec, name: str) -> bool:
    return any(one.stage == name for one in stage.inputs)
