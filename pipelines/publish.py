"""``penstock publish``: one output by hand, and back to the publication before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import InputError, UsageError
from penstock.options import ClientPath
from penstock.paths import client_path
from penstock.pipelines.display import CountsReport, Display
from penstock.pipelines.flow.document import HIDDEN
from penstock.pipelines.flow.places import Place, version_of
from penstock.pipelines.flow.records import FOLDER, find_run
from penstock.pipelines.flow.state import read_record

_KEEP = 2


@dataclass
class PublishReport(CountsReport):
    """What readers find now."""

    place: str
    latest: str

    def text(self) -> str:
        """Return the place and the publication that it shows."""
        return f"{self.place}/latest is {self.latest}"


def command(
    run: Annotated[str | None, Parameter(help="a run, by name or folder")] = None,
    stage: Annotated[str | None, Parameter(help="the stage whose output is published")] = None,
    destination: Annotated[str | None, Parameter(help="a folder, or a URL of fsspec")] = None,
    /,
    *,
    rollback: Annotated[
        str | None, Parameter(help="a place that shows its publication before again")
    ] = None,
    folder: Annotated[ClientPath, Parameter(help="the folder of runs")] = Path(FOLDER),
    output: Display = Display(),
) -> None:
    """Publish the output of a run's stage, or take back the latest publication of a place."""
    if (rollback is None) == (destination is None):
        raise UsageError("give RUN STAGE DEST, or --rollback DEST")
    place = Place(_whole(rollback or destination or ""))
    with place.locked():
        if rollback is not None:
            output.show(PublishReport(str(place), place.roll_back()))
            return
        found = find_run(folder, run)
        one = found.stages.get(str(stage))
        if one is None or "out" not in one:
            raise InputError(f"{found.name} made no stage {stage}",
                             expected=", ".join(found.stages))  # fmt: skip
        known = read_record(Path(str(found.body.get("folder"))) / HIDDEN / f"{stage}.json") or {}
        if "stamp" not in known or known.get("key") != one.get("key"):
            raise InputError(f"{one['out']} is not the output of {found.name} any more",
                             remedy="Name the run that made it: penstock runs list")  # fmt: skip
        place.refuse_others(str(found.body.get("flow")))
        version = version_of(found.name, found.date)
        place.put(Path(one["out"]), version)
        place.move(version, _KEEP)
        place.prune(_KEEP)
        output.show(PublishReport(str(place), str(place.latest())))


def _whole(destination: str) -> str:
    return destination if "://" in destination else str(client_path(Path(destination)))
