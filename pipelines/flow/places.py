"""A place where readers find what a flow publishes: a folder, or a URL of fsspec.

Each publication is a folder of its own, which never changes, and ``latest`` names one of them:

    DEST/2026-11-29-nightly-20261129-043000/    the output of a stage
    DEST/latest                                 a symbolic link to it; a URL has none
    DEST/latest.json                            its name, what readers were shown before, the last
                                                first, and the flow that publishes here
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.errors import OutputExists, PenstockError
from penstock.files import save_json, shown_files
from penstock.output_lock import output_lock
from penstock.sizes import need_disk

_VERSION = re.compile(r"\d{4}-\d\d-\d\d-.+")
_LINK, _POINTER = "latest", "latest.json"


class Place:
    """A folder or URL that Penstock publishes to.

    flow, file  the name and the file of the flow that does, unless readers alone ask
    """

    def __init__(self, destination: str, flow: str = "", file: Path | None = None) -> None:
        self.destination = destination.rstrip("/")
        self.local = "://" not in destination
        self._flow, self._file = flow, None if file is None else file.absolute()

    def __str__(self) -> str:
        return self.destination

    # Reading

    def latest(self) -> str | None:
        """Return the name of the publication that readers are shown; None: there is none."""
        if not self.local:
            found = self._pointer().get("latest")
            return None if found is None else str(found)
        with self._explained():
            link = Path(self._root, _LINK)
            return str(link.readlink()) if link.is_symlink() else None

    def since(self) -> float | None:
        """Return when ``latest`` was moved, if the place knows it."""
        if self.local:
            return Path(self._root, _LINK).lstat().st_mtime
        with suppress(NotImplementedError, OSError):
            return float(self._system.modified(f"{self._root}/{_POINTER}").timestamp())
        return None

    def later(self, version: str) -> str | None:
        """Return what readers are shown, if it is this flow's, and later than a publication."""
        now = self.latest()
        later = now in self.versions() and str(now)[:10] > version[:10]
        return now if later and self.owner() is None else None

    def owner(self) -> str | None:
        """Return the other flow that publishes here; None: there is none."""
        found = self._pointer()
        name, file = found.get("flow"), str(found.get("file"))
        gone = self._file is None or not Path(file).exists()  # the flow was moved since
        if not name or (name == self._flow and (gone or Path(file).samefile(str(self._file)))):
            return None
        return f"{name} ({file})"

    def versions(self) -> list[str]:
        """Return what ``latest`` names and has named and still exists, the last first."""
        found = self._pointer()
        listed = [self.latest(), found.get("latest"), *map(str, found.get("previous", []))]
        with self._explained():
            there = set(self._folders())
        return [one for one in dict.fromkeys(listed) if one in there]

    def holds(self, version: str, output: Path) -> bool:
        """Return whether readers are shown something, and a publication has the output's files."""
        with self._explained():
            if self.latest() not in self.versions():
                return False
            found = self._system.find(f"{self._root}/{version}", detail=True)
            there = {str(name): int(one["size"]) for name, one in found.items()}
        files = shown_files(output, links=True).items()
        own = {f"{self._root}/{version}/{name}": path.stat().st_size for name, path in files}
        return there == own

    def refuse_others(self) -> None:
        """Raise OutputExists if the place is another flow's, or has other files."""
        if (owner := self.owner()) is not None:
            raise OutputExists(
                f"{self} is a place of the flow {owner}, which shows {self.latest()}",
                remedy=f"Publish elsewhere; --replace-targets lets {self._flow} take it over",
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

    def free(self, version: str) -> str:
        """Return a name that no publication has: this one, or it with a number."""
        with self._explained():
            taken = self._folders()
        names = (version, *(f"{version}-{number}" for number in range(2, len(taken) + 3)))
        return next(one for one in names if one not in taken)

    def put(self, output: Path, version: str) -> None:
        """Copy an output, which no reader is shown yet."""
        files = shown_files(output, links=True)
        if self.local:
            size = sum(path.stat().st_size for path in files.values())
            need_disk(Path(self.destination), size, f"a copy of {output} in {self}")
        to = f"{self._root}/{version}"
        target = f"{self._root}/.{version}.partial" if self.local else to
        with self._explained():
            if self.local:
                self.remove(f".{version}.partial")
            self._system.makedirs(target, exist_ok=True)
            for name, path in files.items():
                there = f"{target}/{name}"
                self._system.makedirs(there.rpartition("/")[0], exist_ok=True)
                self._system.put_file(str(path), there)
            if self.local:
                for path in [*Path(target).rglob("*"), Path(target)]:
                    _sync(path)
                Path(target).rename(to)
                _sync(Path(self._root))

    def move(self, version: str, keep: int | None = None) -> None:
        """Have ``latest`` name a publication if it exists and readers are shown no later date.

        keep  how many publications stay [default: all]
        """
        with self._explained():
            there = version in self._folders()
        if there and self.later(version) is None:
            self._point([version, *(one for one in self.versions() if one != version)][:keep])

    def prune(self) -> None:
        """Remove publications that do not stay, and what killed runs have left."""
        kept = self.versions()
        with self._explained():
            for name in self._folders():
                whole = name.removeprefix(".").removesuffix(".partial")
                if _VERSION.fullmatch(whole) and name not in kept:
                    self.remove(name)

    def roll_back(self) -> str:
        """Have ``latest`` name the publication before, and return its name."""
        now = self.latest()
        older = [one for one in self.versions() if one != now]
        if not older:
            raise OutputExists(f"{self} has no publication before {now}")
        self._point(older)
        return older[0]

    def remove(self, name: str) -> None:
        """Remove a folder of the place, if it exists."""
        if self._system.exists(f"{self._root}/{name}"):
            self._system.rm(f"{self._root}/{name}", recursive=True)

    def _point(self, versions: list[str]) -> None:
        """Have ``latest`` name the first of these, and the next be what it names if rolled back."""
        found = self._pointer()
        owner = {name: found.get(name) for name in ("flow", "file")}
        if self._flow:
            owner = {"flow": self._flow, "file": str(self._file)}
        body = {"latest": versions[0], "previous": versions[1:], **owner}
        with self._explained():
            if not self.local:
                self._system.pipe_file(f"{self._root}/{_POINTER}", json.dumps(body).encode())
                return
            save_json(Path(self._root, _POINTER), body)
            new = Path(self._root, f".{_LINK}.{secrets.token_hex(4)}")
            new.symlink_to(versions[0])
            new.replace(Path(self._root, _LINK))
            _sync(Path(self._root))

    def _pointer(self) -> dict[str, Any]:
        """Return the content of ``latest.json``; nothing if there is none."""
        path = f"{self._root}/{_POINTER}"
        with self._explained():
            try:
                text = self._system.cat_file(path)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        try:
            found = json.loads(text)
            if isinstance(found["latest"], str) and isinstance(found["previous"], list):
                return dict(found)
            got = "other content"
        except (ValueError, KeyError, TypeError) as error:
            got = f"{type(error).__name__}: {error}"
        raise PenstockError(
            f"{self}/{_POINTER} is damaged",
            got=got,
            remedy="Remove it: the next run of the flow that publishes here writes it again",
        )

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
        return [
            one
            for one in names
            if one[0] != "." and one != _POINTER and not _VERSION.fullmatch(one)
        ]

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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
