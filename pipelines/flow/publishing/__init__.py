"""Moving outputs that passed to their targets: all targets of a run, or none.

    publication = Publication(journal, note)
    publication.recover()                 # what an earlier run left half-done
    publication.publish(items, run, keep)

First everything is prepared under names that no reader uses. Then every target is swapped, one
rename each, so readers see a mixture for as long as that takes; if one cannot be, those that were
are swapped back. A journal lists the targets and the direction. A kill between two swaps leaves
it there, and the next run completes it in the same direction.

    back      preparing, or swapping back: nothing of the new is to stay
    forward   everything is prepared and checked: everything new is to be seen
    settle    all new outputs are visible: the old ones become the previous ones
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import PenstockError
from penstock.files import save_json
from penstock.output_lock import output_lock
from penstock.pipelines.flow.publishing.targets import (
    LocalTarget,
    Target,
    explained,
    from_dict,
    target_of,
)


@dataclass(frozen=True)
class Item:
    """An output and its target; the key is its identity."""

    stage: str
    key: str | None
    output: Path
    destination: str


@dataclass
class _Entry:
    """A target of the journal."""

    stage: str
    key: str | None
    destination: str
    target: Target

    def to_dict(self) -> dict[str, Any]:
        return {"stage": self.stage, "key": self.key, "destination": self.destination,
                "target": self.target.to_dict()}  # fmt: skip


class Publication:
    """What a flow publishes.

    journal  a file in the flow's folder, there only while something is published
    note     called with stage, destination and key of each published output
    """

    def __init__(self, journal: Path, note: Callable[[str, str, str | None], None]) -> None:
        self._journal, self._note = journal, note

    def publish(
        self,
        items: Sequence[Item],
        run: str,
        *,
        keep: int,
        by: dict[str, Any] | None = None,
        check: Callable[[Item], None] | None = None,
    ) -> list[str]:
        """Publish all of them or none; return the path of each.

        by     who publishes, for the records next to the targets
        check  called with each item while its target is locked; raises if others exist there
        """
        self.recover()
        if not items:
            return []
        entries = [_entry(item, run, by) for item in items]
        for item, entry in zip(items, entries, strict=True):
            entry.target.check(item.output)
        with _locked(entries):
            if check is not None:
                for item in items:
                    check(item)
            try:
                self._save("back", run, keep, entries)
                for item, entry in zip(items, entries, strict=True):
                    entry.target.prepare(item.output)
                self._forward(run, keep, entries)
            except BaseException as error:
                self._give_up(run, keep, entries, error)
                raise
            self._settle(run, keep, entries)
        return [entry.target.where() for entry in entries]

    def recover(self) -> str | None:
        """Bring what a run left half-done to its end; return what was done, or None."""
        try:
            body = parse_json(self._journal.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise PenstockError(
                f"{self._journal} cannot be read",
                got=str(error),
                remedy="Check that all targets are of one run, remove that file, run again",
            ) from error
        run, keep, way = body["run"], body["keep"], body["way"]
        entries = [
            _Entry(one["stage"], one["key"], one["destination"], from_dict(one["target"]))
            for one in body["entries"]
        ]
        with _locked(entries):
            if way == "forward":
                try:
                    self._forward(run, keep, entries)
                    way = "settle"
                except PenstockError as error:
                    self._give_up(run, keep, entries, error)
                    return f"the publication of {run} was cut off, and taken back: {error}"
            if way == "settle":
                self._settle(run, keep, entries)
                return f"the publication of {run} was cut off, and is complete now"
            self._back(entries)
        return f"the publication of {run} was cut off, and taken back"

    def _forward(self, run: str, keep: int, entries: list[_Entry]) -> None:
        # Those that are likely to fail come first, so that less must be reverted.
        ordered = sorted(entries, key=lambda entry: isinstance(entry.target, LocalTarget))
        self._save("forward", run, keep, entries)
        for entry in ordered:
            entry.target.swap()
            self._save("forward", run, keep, entries)

    def _settle(self, run: str, keep: int, entries: list[_Entry]) -> None:
        self._save("settle", run, keep, entries)
        for entry in entries:
            entry.target.settle(keep)
            self._note(entry.stage, entry.destination, entry.key)
        self._journal.unlink()

    def _give_up(self, run: str, keep: int, entries: list[_Entry], error: BaseException) -> None:
        """Take everything back; what cannot be taken back now is by the next run."""
        try:
            self._save("back", run, keep, entries)
            self._back(entries)
            said = "every target is as it was"
        except (PenstockError, OSError) as more:
            said = f"the next run reverts what could not be reverted now ({more})"
        if isinstance(error, PenstockError):
            error.what = f"{error.what}; {said}"

    def _back(self, entries: list[_Entry]) -> None:
        failed: list[PenstockError] = []
        for entry in reversed(entries):
            try:
                entry.target.swap_back()
                entry.target.discard()
            except PenstockError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        self._journal.unlink(missing_ok=True)

    def _save(self, way: str, run: str, keep: int, entries: list[_Entry]) -> None:
        body = [entry.to_dict() for entry in entries]
        save_json(self._journal, {"way": way, "run": run, "keep": keep, "entries": body})


def _entry(item: Item, run: str, by: dict[str, Any] | None) -> _Entry:
    more = None if by is None else {**by, "stage": item.stage, "key": item.key}
    return _Entry(item.stage, item.key, item.destination, target_of(item.destination, run, more))


@contextmanager
def _locked(entries: list[_Entry]) -> Iterator[None]:
    """Lock every path, in one order, so that two flows never wait for each other."""
    paths = sorted(one.target.target for one in entries if isinstance(one.target, LocalTarget))
    with ExitStack() as stack:
        for path in paths:
            with explained(str(path)):
                stack.enter_context(output_lock(path, command="penstock run", wait=True))
        yield
