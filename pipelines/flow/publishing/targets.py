"""The target of an output: a path or a URL, each changed in steps that can be reverted.

prepare    the new output lies next to the target, and no reader sees it
taken      something exists already; publisher: who published it, by its record
swap       readers see the new output
swap_back  readers see the old output again
settle     the old output is kept as the previous one, older ones are removed
discard    a prepared copy that was not swapped is removed

A path: the output is copied next to the target under a hidden name, and the two change names; the
old output is kept as ``<name>.previous`` (and ``.previous-2`` and so on), and
``.<name>.published.json`` names the owner of all these. A URL of fsspec: a folder with the run's
name is written, and then ``latest.json``, which names it: readers look there.

Each step may be repeated after a kill in the middle of it: the existing files show its progress.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.documents import parse_json
from penstock.errors import PenstockError, UsageError
from penstock.files import remove, save_json
from penstock.output import aside, exchange, put_in_place
from penstock.sizes import need_disk

_BY = "published_by"


def target_of(destination: str, run: str, by: dict[str, Any] | None = None) -> Target:
    """Return the target at a path or URL, for a run of this name, which ``by`` describes."""
    if "://" in destination and not destination.startswith("file://"):
        return RemoteTarget(destination.rstrip("/"), run, by=by)
    return LocalTarget(destination.removeprefix("file://"), by=by)


def from_dict(body: dict[str, Any]) -> Target:
    """Return the target that ``to_dict`` was called of."""
    kinds: dict[str, type[Target]] = {"path": LocalTarget, "url": RemoteTarget}
    return kinds[body["kind"]](**{key: value for key, value in body.items() if key != "kind"})


@dataclass
class LocalTarget:
    """A path.

    number  the inode of the prepared copy: the new output has it; None: not prepared yet
    by      who publishes, for the record next to it; None: no record
    """

    path: str
    number: int | None = None
    by: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.target = Path(self.path)
        self.copy = self.target.with_name(f".{self.target.name}.publishing")
        self._old = aside(self.target)
        self._new = self.target.with_name(f".{self.target.name}.new")
        self._record = self.target.with_name(f".{self.target.name}.published.json")

    def check(self, output: Path) -> None:
        """Refuse a link, and a path within the output."""
        target = self.target
        if target.is_symlink():
            raise UsageError(f"publish: {target} is a symbolic link", remedy="Name its destination")
        if target.resolve() == output.resolve() or output.resolve() in target.resolve().parents:
            raise UsageError(
                f"publish: {target} lies in the output itself", remedy="Name another target"
            )

    def taken(self) -> bool:
        """Return whether there is something, and not just an empty folder."""
        return is_taken(self.target)

    def publisher(self) -> dict[str, Any] | None:
        """Return who published here last, and what was kept then; None: nothing is known."""
        return read_record(self._record)

    def previous_names(self, keep: int) -> list[str]:
        """Return the names under which previous outputs are kept."""
        before = f"{self.target.name}.previous"
        return [before if n == 1 else f"{before}-{n}" for n in range(1, keep + 1)]

    def prepare(self, output: Path) -> None:
        """Copy the output next to the target, to the disk."""
        with explained(self.path):
            self._prepare(output)

    def _prepare(self, output: Path) -> None:
        files = [output] if output.is_file() else output.rglob("*")
        size = sum(one.stat().st_size for one in files if one.is_file())
        need_disk(self.target.parent, size, f"a copy of {output}, to be published")
        for left in (self.copy, self._new):  # by a run that was killed
            remove(left)
        if self.target.exists():
            remove(self._old)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        if output.is_dir():
            shutil.copytree(output, self.copy, symlinks=True, ignore=_hidden)
            for path in [*self.copy.rglob("*"), self.copy]:
                if path.is_dir() or path.is_file():
                    _sync(path)
        else:
            shutil.copy2(output, self.copy)
            _sync(self.copy)
        self.number = self.copy.stat().st_ino

    def swap(self) -> None:
        """Give target and copy each other's names."""
        with explained(self.path):
            if not self._is_new(self.target):
                if not self._is_new(self.copy):
                    raise FileNotFoundError(2, "the prepared copy no longer exists", str(self.copy))
                put_in_place(self.copy, self.target)
            if self._old.exists():
                self._old.rename(self.copy)
            _sync(self.target.parent)

    def swap_back(self) -> None:
        """Give the target what it was, or nothing if there was nothing."""
        if self.number is None:
            return  # it was never wholly prepared, so never swapped
        with explained(self.path):
            if self._is_new(self.target) and not (
                self.copy.exists() and exchange(self.copy, self.target)
            ):
                self.target.rename(self._new)
            if not self.target.exists():
                for before in (self._old, self.copy):
                    if before.exists() and not self._is_new(before):
                        before.rename(self.target)
                        break
            if self.target.parent.exists():
                _sync(self.target.parent)

    def settle(self, keep: int) -> None:
        """Keep what was published before: the newest as .previous, older ones with numbers.

        Names move up only as far as the first that is free, so a kill in between loses none. The
        record next to it comes first: after a kill it must not seem that others put them there.
        """
        names: list[Path] = []
        if self.copy.exists():  # up to the first that is free
            for name in self.previous_names(keep):
                if not names or names[-1].exists():
                    names.append(self.target.with_name(name))
        with explained(self.path):
            self._save_record(names)
            if self.copy.exists():
                self._keep(names)

    def _save_record(self, names: list[Path]) -> None:
        if self.by is None:
            return
        before = (self.publisher() or {}).get("previous")
        known = [one for one in before if isinstance(one, str)] if isinstance(before, list) else []
        kept = {one for one in known if self.target.with_name(one).exists()}
        save_json(
            self._record, {**self.by, "previous": sorted({*kept, *(one.name for one in names)})}
        )

    def _keep(self, names: list[Path]) -> None:
        if not names:
            remove(self.copy)
            return
        free = len(names) - 1
        remove(names[free])
        for n in range(free, 0, -1):
            names[n - 1].rename(names[n])
        self.copy.rename(names[0])

    def discard(self) -> None:
        """Remove the copy."""
        with explained(self.path):
            for left in (self.copy, self._new):
                remove(left)

    def where(self) -> str:
        """Return where readers find it."""
        return self.path

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` takes."""
        return {"kind": "path", **asdict(self)}

    def _is_new(self, path: Path) -> bool:
        """Return whether this is what was prepared."""
        return path.exists() and path.stat().st_ino == self.number


@dataclass
class RemoteTarget:
    """A URL of fsspec.

    before     the runs that latest.json named before, the newest first; None: not known yet
    by         who publishes, for latest.json; before_by: who it named before
    """

    url: str
    run: str
    before: list[str] | None = None
    by: dict[str, Any] | None = None
    before_by: dict[str, Any] | None = None

    def check(self, output: Path) -> None:
        """Refuse an address that fsspec cannot use."""
        with self._explained():
            self._system()

    def taken(self) -> bool:
        """Return whether readers are shown a run."""
        with self._explained():
            system, root = self._system()
            return bool(system.exists(f"{root}/latest.json"))

    def publisher(self) -> dict[str, Any] | None:
        """Return who published here last; None: nothing is known."""
        with self._explained():
            return _latest(*self._system())[1]

    def prepare(self, output: Path) -> None:
        """Write the folder of the run."""
        with self._explained():
            system, root = self._system()
            (self.before, self.before_by), to = _latest(system, root), f"{root}/{self.run}"
            if not output.is_dir():
                system.makedirs(to, exist_ok=True)
                system.put_file(str(output), f"{to}/{output.name}")
                return
            for folder, inner, names in os.walk(output):
                inner[:] = [one for one in inner if not one.startswith(".")]
                for name in names:
                    path = Path(folder, name)
                    there = f"{to}/{path.relative_to(output)}"
                    system.makedirs(there.rpartition("/")[0], exist_ok=True)
                    system.put_file(str(path), there)

    def swap(self) -> None:
        """Have latest.json name the new folder: readers find the old one until then."""
        self._point_to([self.run, *self._before()], self.by)

    def swap_back(self) -> None:
        """Have latest.json name the runs that it named before."""
        with self._explained():
            system, root = self._system()
            # If writing was cut off, no file may exist.
            now, _ = _latest(system, root)
            if self.before is None or (now[:1] != [self.run] and (now or not self.before)):
                return
            if not self.before:
                system.rm(f"{root}/latest.json")
                return
        self._point_to(self.before, self.before_by)

    def settle(self, keep: int) -> None:
        """Remove the folders of runs that are no longer kept, and their entries."""
        kept = [self.run, *self._before()][: keep + 1]
        self._point_to(kept, self.by)
        with self._explained():
            system, root = self._system()
            for one in self._before():
                if one not in kept and system.exists(f"{root}/{one}"):
                    system.rm(f"{root}/{one}", recursive=True)

    def discard(self) -> None:
        """Remove the folder of the run."""
        with self._explained():
            system, root = self._system()
            if system.exists(f"{root}/{self.run}"):
                system.rm(f"{root}/{self.run}", recursive=True)

    def where(self) -> str:
        """Return where readers find it."""
        return f"{self.url}/{self.run}"

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` takes."""
        return {"kind": "url", **asdict(self)}

    def _before(self) -> list[str]:
        return [one for one in self.before or [] if one != self.run]

    def _point_to(self, runs: list[str], by: dict[str, Any] | None) -> None:
        named = {} if by is None else {_BY: by}
        with self._explained():
            system, root = self._system()
            with system.open(f"{root}/latest.json", "w") as file:
                json.dump({"run": runs[0], "previous": runs[1:], **named}, file)

    def _system(self) -> tuple[Any, str]:
        import fsspec

        system, root = fsspec.url_to_fs(self.url)
        return system, root

    def _explained(self) -> Any:
        return explained(self.url)


Target = LocalTarget | RemoteTarget


@contextmanager
def explained(destination: str) -> Iterator[None]:
    """Raise what the system refuses as an error of publishing."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        remedy = (
            "Check the address and its credentials" if "://" in destination else "Check the path"
        )
        raise PenstockError(
            f"cannot publish to {destination}",
            got=f"{type(error).__name__}: {error}",
            remedy=f"{remedy}, then run again: nothing is rebuilt",
        ) from error


def _latest(system: Any, root: str) -> tuple[list[str], dict[str, Any] | None]:
    """Return the runs that readers are shown, the newest first, and who published the last."""
    try:
        with system.open(f"{root}/latest.json") as file:
            found = json.load(file)
        by = found.get(_BY)
        runs = [str(found["run"]), *map(str, found.get("previous", []))]
        return runs, by if isinstance(by, dict) else None
    except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError, AttributeError):
        return [], None


def is_taken(path: Path) -> bool:
    """Return whether there is something at a path, and not just an empty folder."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def read_record(path: Path) -> dict[str, Any] | None:
    """Return our record; None if there is none that can be read."""
    try:
        body = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _hidden(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name.startswith(".")}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
