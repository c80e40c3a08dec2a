"""Publishing what passed: all places of a run, or none.

A run first copies every output to its place, under a name that no reader is shown. Then it writes
what it is about to move into run.json, and moves ``latest`` of each place. If it is killed before,
nothing has moved; if it is killed in between, the next run moves the rest.

    publisher = Publisher(flow, say=print)
    publisher.recover()                    # what an earlier run left half-done
    publisher.refuse()                     # before anything runs
    publisher.publish(record, contents)    # once all is well
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.places import Place, version_of
from penstock.pipelines.flow.records import FOLDER, RunRecord, all_runs
from penstock.pipelines.flow.report import shown_target
from penstock.secrets import masked

Entry = dict[str, Any]  # stage, to, place, version, key, moved: of run.json


class Publisher:
    """What a run asks of publishing.

    replace  publish also to places of other flows
    """

    def __init__(self, flow: Flow, *, say: Callable[[str], None], replace: bool = False) -> None:
        self._flow, self._say, self._replace = flow, say, replace
        self._places = {
            (name, self._near(destination)): Place(destination)
            for name, stage in flow.stages.items()
            for destination in map(flow.destination, stage.publish)
        }

    def recover(self) -> None:
        """Move what a run was about to move when it was cut off."""
        for run in self._runs():
            entries = _entries(run)
            if left := [one for one in entries if not one.get("moved")]:
                try:
                    self._move(left)
                except PenstockError as error:
                    # A place that cannot be reached now may be at the end, when it must be.
                    self._say(f"{error}; this run tries again when it publishes")
                else:
                    run.save()
                    self._say(f"completed what {run.name} was publishing when it was cut off")
            if entries:
                return

    def refuse(self) -> None:
        """Raise OutputExists if a folder is another flow's; a URL may be out of reach now."""
        for place in self._places.values() if not self._replace else ():
            if place.local:
                place.refuse_others(self._flow.name)

    def publish(self, record: RunRecord, contents: Mapping[str, str]) -> None:
        """Publish every stage that is to be, and whose place lacks what it should have."""
        entries = []
        for (stage, near), place in self._places.items():
            key, before = contents[stage], self._last(stage, near)
            same = before is not None and before.get("moved") and before.get("key") == key
            if same and self._shows(place, str(before["version"]), stage):  # type: ignore[index]
                continue
            version = version_of(record.name, record.date)
            to = f"{masked(str(place))}/{version}"
            entries.append({"stage": stage, "to": to, "place": near, "version": version,
                            "key": key, "moved": False})  # fmt: skip
        if not entries:
            return
        with ExitStack() as stack:
            for destination in sorted({self._place(one).destination for one in entries}):
                stack.enter_context(Place(destination).locked())
            self._put(entries)
            record.body["published"] = entries
            record.save()
            self._move(_entries(record))
            record.save()
            for one in entries:
                with suppress(PenstockError, OSError):  # the next run removes them
                    self._place(one).prune(self._flow.keys.keep)

    def _shows(self, place: Place, version: str, stage: str) -> bool:
        own = place.owner() in (None, self._flow.name)
        return own and place.holds(version, self._flow.output(stage))

    def _put(self, entries: list[Entry]) -> None:
        done: list[Entry] = []
        try:
            for one in entries:
                place, stage = self._place(one), str(one["stage"])
                if not self._replace:
                    place.refuse_others(self._flow.name)
                self._say(f"{stage}: publishing to {shown_target(str(masked(str(place))))}")
                done.append(one)
                place.put(self._flow.output(stage), one["version"])
        except BaseException:
            for one in done:
                with suppress(PenstockError, OSError):  # the next run removes them
                    self._place(one).remove(one["version"])
            raise

    def _move(self, entries: list[Entry]) -> None:
        for one in entries:
            place = self._places.get((str(one["stage"]), str(one["place"])))
            if place is not None:  # else the flow does not publish there any more
                place.move(one["version"], self._flow.keys.keep)
            one["moved"] = True

    def _place(self, entry: Entry) -> Place:
        return self._places[entry["stage"], entry["place"]]

    def _last(self, stage: str, near: str) -> Entry | None:
        """Return what was last published of a stage to a place, as the records of runs have it."""
        for run in self._runs():
            for one in _entries(run):
                if (one["stage"], one.get("place")) == (stage, near):
                    return one
        return None

    def _runs(self) -> Iterator[RunRecord]:
        if self._places:
            yield from reversed(all_runs(self._flow.home / FOLDER, self._flow.name))

    def _near(self, destination: str) -> str:
        """Return how records name a place: within the flow's own folder, which may be moved."""
        if "://" in destination:
            return str(masked(destination.rstrip("/")))
        path, home = Path(os.path.normpath(destination)), self._flow.home
        return str(masked(str(path.relative_to(home) if path.is_relative_to(home) else path)))


def _entries(run: RunRecord) -> list[Entry]:
    listed = run.body.get("published")
    found = listed if isinstance(listed, list) else []
    return [one for one in found if isinstance(one, dict) and "version" in one]
