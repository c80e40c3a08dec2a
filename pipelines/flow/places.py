"""A place where readers find what a flow publishes: a folder, or a URL of fsspec.

Each publication is a folder of its own, which never changes, and ``latest`` names one of them:

    DEST/2026-11-29-nightly-20261129-043000/    the output of a stage
    DEST/latest                                 a symbolic link to it; at a URL, latest.json
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import OutputExists, PenstockError
from penstock.output_lock import output_lock
from penstock.sizes import need_disk

_VERSION = re.compile(r"\d{4}-\d\d-\d\d-.+")
_OF_RUN = re.compile(r"\d{4}-\d\d-\d\d-(?P<flow>.+)-(?P<when>\d{8}-\d{6}(-\d+)?)")
_LINK, _POINTER = "latest", "latest.json"


class Place:
    """A folder or URL that Penstock publishes to."""

    def __init__(self, destination: str) -> None:
        self.destination = destination.rstrip("/")
        self.local = "://" not in destination

    def __str__(self) -> str:
        return self.destination

    # Reading

    def latest(self) -> str | None:
        """Return the name of the publication that readers are shown; None: there is none."""
        return self._named()[0]

    def owner(self) -> str | None:
        """Return the flow whose publication readers are shown; None: there is none."""
        found = _OF_RUN.fullmatch(self.latest() or "")
        return found["flow"] if found else None

    def versions(self) -> list[str]:
        """Return the publications that ``latest`` may name, the newest first."""
        if not self.local:
            found, before = self._named()
            return [one for one in (found, *before) if one is not None]
        return sorted((one for one in self._folders() if _VERSION.fullmatch(one)),
                      key=_when, reverse=True)  # fmt: skip

    def holds(self, version: str, output: Path) -> bool:
        """Return whether readers are shown something, and a publication has the output's files."""
        with self._explained():
            if self.latest() not in self.versions():
                return False
            found = self._system.find(f"{self._root}/{version}", detail=True)
            there = {str(name): int(one["size"]) for name, one in found.items()}
        files = {name: path.stat().st_size for name, path in _files(output)}
        return there == {f"{self._root}/{version}/{name}": size for name, size in files.items()}

    def refuse_others(self, flow: str) -> None:
        """Raise OutputExists if the place is another flow's, or holds what nobody published."""
        if (owner := self.owner()) not in (None, flow):
            raise OutputExists(
                f"{self}/latest is of the flow {owner}: {self.latest()}",
                remedy=f"Publish elsewhere; --replace-targets lets {flow} take the place over",
            )
        if self.local and self.latest() is None and (others := self._others()):
            raise OutputExists(
                f"{self} exists, and is not a place that Penstock publishes to: it has {others[0]}",
                expected=f"a new folder, or one with {_LINK} and one folder per publication",
                remedy=f"Publish elsewhere, or convert it: mv {self} {self}.old && mkdir {self} && "
                f"mv {self}.old {self}/2000-01-01-before && ln -s 2000-01-01-before {self}/{_LINK}",
            )

    # Writing

    def locked(self) -> Any:
        """Keep other flows of this host out of a folder meanwhile."""
        if not self.local:
            return nullcontext()
        Path(self.destination).parent.mkdir(parents=True, exist_ok=True)
        return output_lock(Path(self.destination), command="penstock run", wait=True)

    def put(self, output: Path, version: str) -> None:
        """Copy an output, which no reader is shown yet."""
        files = _files(output)
        if self.local:
            size = sum(path.stat().st_size for _, path in files)
            need_disk(_existing(Path(self.destination)), size, f"a copy of {output} in {self}")
        to = f"{self._root}/{version}"
        target = f"{self._root}/.{version}.partial" if self.local else to
        with self._explained():
            for left in {target, to}:
                self.remove(left.rpartition("/")[2])
            self._system.makedirs(target, exist_ok=True)
            for name, path in files:
                there = f"{target}/{name}"
                self._system.makedirs(there.rpartition("/")[0], exist_ok=True)
                self._system.put_file(str(path), there)
            if self.local:
                for path in [*Path(target).rglob("*"), Path(target)]:
                    _sync(path)
                Path(target).rename(to)
                _sync(Path(self._root))

    def move(self, version: str, keep: int) -> None:
        """Have ``latest`` name a publication, unless it names one of a later date.

        keep  how many publications ``latest.json`` lists
        """
        now = self.latest()
        if now is not None and now[:10] > version[:10] and now in self.versions():
            return
        self._point(version, [one for one in self.versions() if one != version][: keep - 1])

    def prune(self, keep: int) -> None:
        """Remove all but the newest publications, and what killed runs have left."""
        now = self.latest()
        kept = [one for one in self.versions() if one != now][: keep - 1]
        with self._explained():
            for name in self._folders():
                whole = name.removeprefix(".").removesuffix(".partial")
                if _VERSION.fullmatch(whole) and name not in (now, *kept):
                    self.remove(name)

    def roll_back(self) -> str:
        """Have ``latest`` name the publication before, and return its name."""
        now, known = self.latest(), self.versions()
        older = [one for one in known if now is not None and _when(one) < _when(now)]
        if not older:
            raise OutputExists(f"{self} has no publication before {now}", expected=", ".join(known))
        self._point(older[0], older[1:])
        return older[0]

    def remove(self, name: str) -> None:
        """Remove a folder of the place, if it exists."""
        if self._system.exists(f"{self._root}/{name}"):
            self._system.rm(f"{self._root}/{name}", recursive=True)

    def _point(self, version: str, before: list[str]) -> None:
        with self._explained():
            if self.local:
                new = Path(self._root, f".{_LINK}.{secrets.token_hex(4)}")
                new.symlink_to(version)
                new.replace(Path(self._root, _LINK))
                _sync(Path(self._root))
            else:
                text = json.dumps({"latest": version, "previous": before})
                self._system.pipe_file(f"{self._root}/{_POINTER}", text.encode())

    def _named(self) -> tuple[str | None, list[str]]:
        """Return what ``latest`` names and, at a URL, the publications before."""
        with self._explained():
            if self.local:
                link = Path(self._root, _LINK)
                return (str(link.readlink()) if link.is_symlink() else None), []
            try:
                found = json.loads(self._system.cat_file(f"{self._root}/{_POINTER}"))
                return str(found["latest"]), [str(one) for one in found["previous"]]
            except FileNotFoundError:
                return None, []
            except (KeyError, TypeError) as error:
                raise ValueError(f"{_POINTER} is not Penstock's") from error

    def _folders(self) -> list[str]:
        if not self._system.isdir(self._root):
            return []
        self._system.invalidate_cache(self._root)
        found = self._system.ls(self._root, detail=True)
        return [
            str(one["name"]).rstrip("/").rpartition("/")[2]
            for one in found
            if one["type"] == "directory" and not one.get("islink")
        ]

    def _others(self) -> list[str]:
        """Return what is in a folder besides publications."""
        root = Path(self._root)
        if root.exists() and not root.is_dir():
            return ["a file"]
        names = sorted(one.name for one in root.iterdir()) if root.is_dir() else []
        return [one for one in names if one[0] != "." and not _VERSION.fullmatch(one)]

    @cached_property
    def _found(self) -> tuple[Any, str]:
        import fsspec

        system, root = fsspec.url_to_fs(self.destination)
        return system, str(root).rstrip("/")

    @property
    def _system(self) -> Any:
        return self._found[0]

    @property
    def _root(self) -> str:
        return self._found[1]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise what the system refuses as an error of publishing."""
        try:
            yield
        except (OSError, ValueError, ImportError) as error:
            raise PenstockError(
                f"cannot publish to {self}",
                got=f"{type(error).__name__}: {error}",
                remedy="Check the path, or the address and its credentials, then run again: "
                "nothing is rebuilt",
            ) from error


def version_of(run: str, date: str) -> str:
    """Return the name of what a run publishes."""
    return f"{date}-{run}"


def _when(version: str) -> tuple[str, str]:
    """Return what publications are sorted by: their date, then when their run began."""
    found = _OF_RUN.fullmatch(version)
    return version[:10], found["when"] if found else ""


def _files(output: Path) -> list[tuple[str, Path]]:
    """Return the files of an output by their names within it; what is hidden is left out."""
    if not output.is_dir():
        return [(output.name, output)]
    found = []
    for folder, inner, names in os.walk(output, followlinks=True):
        inner[:] = sorted(one for one in inner if not one.startswith("."))
        paths = [Path(folder, one) for one in sorted(names) if not one.startswith(".")]
        found += [(path.relative_to(output).as_posix(), path) for path in paths]
    return found


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
