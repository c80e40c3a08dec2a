"""Publishing what passed: all places of a run, or none.

A run first copies every output to its place, under a name that no reader is shown. Then it writes
what it is about to move into run.json, and moves ``latest`` of each place. If it is killed before,
nothing has moved; if it is killed in between, the next run moves the rest. If readers are
shown a later date, nothing is copied.

    publisher = Publisher(flow, say=print)
    publisher.recover()                    # what an earlier run left half-done
    publisher.refuse()                     # before anything runs
    publisher.publish(record, contents)    # once all is well
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from penstock.errors import PenstockError, warn
from penstock.pipelines.flow.document import Flow
from penstock.pipelines.flow.places import Place, version_of
from penstock.pipelines.flow.records import FOLDER, RunRecord, all_runs
from penstock.pipelines.flow.report import shown_target
from penstock.secrets import masked, unmasked

Entry = dict[str, Any]  # stage, to, place; version, key, moved, or what it stays at: of run.json


class Publisher:
    """What a run asks of publishing.

    replace  publish also to places of other flows
    """

    def __init__(self, flow: Flow, *, say: Callable[[str], None], replace: bool = False) -> None:
        self._flow, self._say, self._replace = flow, say, replace
        self._places = {
            (name, str(masked(destination))): place_of(flow, destination)
            for name, stage in flow.stages.items()
            for destination in map(flow.destination, stage.keys.publish)
        }

    def recover(self) -> None:
        """Move what a run was about to move when it was cut off."""
        for run in self._runs():
            entries = _entries(run)
            if left := [one for one in entries if not one.get("moved")]:
                try:
                    with self._locked(map(self._place, left)):
                        for one in left:
                            self._refuse(self._place(one))
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
        for place in self._places.values():
            if place.local:
                self._refuse(place)

    def publish(self, record: RunRecord, contents: Mapping[str, str]) -> None:
        """Publish every stage that is to be, and whose place lacks what it should have."""
        lacking = {
            (stage, name): place
            for (stage, name), place in self._places.items()
            if not self._has(stage, name, contents[stage])
        }
        if not lacking:
            return
        version, entries, stays = version_of(record.name, record.date), [], []
        with self._locked(lacking.values()):
            for (stage, name), place in lacking.items():
                self._refuse(place)
                entry = {"stage": stage, "to": masked(str(place)), "place": name}
                if (later := place.later(version)) is not None:
                    stays.append({**entry, "stays": later})
                    warn(f"{stage} is not published: {entry['to']} shows a later date, {later}")
                    continue
                entries.append(
                    {
                        **entry,
                        "to": f"{entry['to']}/{version}",
                        "version": version,
                        "key": contents[stage],
                        "moved": False,
                    }
                )
            self._put(entries)
            record.body["published"] = [*entries, *stays]
            record.save()
            self._move(_entries(record))
            record.save()
            for one in entries:
                with suppress(PenstockError, OSError):  # the next run removes them
                    self._place(one).prune()

    def _has(self, stage: str, name: str, key: str) -> bool:
        """Return whether what was last published of a stage to a place is this, and all there."""
        before, place = self._last(stage, name), self._places[stage, name]
        if before is None or not before.get("moved") or before.get("key") != key:
            return False
        held = place.holds(str(before["version"]), self._flow.output(stage))
        return held and place.owner() is None

    def _refuse(self, place: Place) -> None:
        if not self._replace:
            place.refuse_others()

    @contextmanager
    def _locked(self, places: Iterable[Place]) -> Iterator[None]:
        with ExitStack() as stack:
            for _, place in sorted({one.destination: one for one in places}.items()):
                stack.enter_context(place.locked())
            yield

    def _put(self, entries: list[Entry]) -> None:
        done: list[Entry] = []
        try:
            for one in entries:
                place, stage = self._place(one), str(one["stage"])
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
            self._place(one).move(one["version"], self._flow.keys.keep)
            one["moved"] = True

    def _place(self, entry: Entry) -> Place:
        """Return the place of an entry, also of one that the flow of an earlier date named."""
        name = str(entry["place"])
        return self._places.get((str(entry["stage"]), name)) or place_of(self._flow, unmasked(name))

    def _last(self, stage: str, name: str) -> Entry | None:
        """Return what was last published of a stage to a place, as the records of runs have it."""
        for run in self._runs():
            for one in _entries(run):
                if (one["stage"], one.get("place")) == (stage, name):
                    return one
        return None

    def _runs(self) -> Iterator[RunRecord]:
        if self._places:
            yield from reversed(all_runs(self._flow.home / FOLDER, self._flow.name))


def place_of(flow: Flow, destination: str) -> Place:
    """Return a place of a flow."""
    return Place(destination, flow.name, flow.path)


def _entries(run: RunRecord) -> list[Entry]:
    return [one for one in run.body.get("published", []) if "version" in one]
