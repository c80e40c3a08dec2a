"""``penstock publish``: one output by hand, and back to the publication before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.errors import InputError, OutputExists, UsageError
from penstock.options import ClientPath
from penstock.output_lock import output_lock
from penstock.pipelines.display import CountsReport, Display
from penstock.pipelines.flow.document.destinations import destination_of
from penstock.pipelines.flow.places import Place, version_of
from penstock.pipelines.flow.records import FOLDER, find_run
from penstock.pipelines.flow.state import is_there, is_whole, record_of


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
    where = destination_of(rollback or destination or "", Path.cwd())
    if rollback is not None:
        place = Place(where)
        with place.locked():
            output.show(PublishReport(str(place), place.roll_back()))
        return
    found = find_run(folder, run)
    one = found.stages.get(str(stage))
    if one is None or "out" not in one:
        raise InputError(f"{found.name} made no stage {stage}", expected=", ".join(found.stages))
    place = Place(where, found.body["flow"], Path(found.body["file"]))
    outputs, made = Path(found.body["folder"]), Path(one["out"])
    with output_lock(outputs, command="penstock run"), place.locked():
        known = record_of(found, str(stage))
        if not is_whole(known) or not is_there(made, known):
            raise InputError(
                f"{made} is not the output of {found.name} any more",
                remedy="Name the run that made it: penstock runs list",
            )
        place.refuse_others()
        version = version_of(found.name, found.date)
        if (later := place.later(version)) is not None:
            raise OutputExists(
                f"{place} shows readers a later date: {later}",
                remedy=f"Publish elsewhere, or go back first: penstock publish --rollback {place}",
            )
        if not place.holds(version, made):
            version = place.free(version)
            place.put(made, version)
        place.move(version)
        output.show(PublishReport(str(place), str(place.latest())))
