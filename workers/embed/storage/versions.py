"""Which version of each partition is whole: checkpoints of a table that is written all the time.

    nodes-0003-000012.table          a version of a partition (storage)
    relations-000012.safetensors     relations, their optimizer state: what is not in the table
    last.json, best.json             a checkpoint each: the version of every partition, the file
                                     of relations, and what the job says of it

A checkpoint is written in this order, each on the disk before the next: partitions, relations,
manifest, which takes its name in one rename. A process that is killed anywhere leaves the one
before. What a manifest names is not written to.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.arrays import Array
from penstock.errors import CorruptFile, GraphError, MissingFile, PenstockError
from penstock.files import FileEntry, atomic, file_entry, file_table, read_file_table
from penstock.formats import Format
from penstock.workers.embed.storage import RESTORE, Geometry, Version

LAST, BEST = "last", "best"
_ATTEMPTS = 5  # to read a checkpoint while a training run replaces it
R = TypeVar("R")


class Versions:
    """Which version of each partition is the newest that this rank knows of.

    versions.current(3)         what to read
    versions.next(3)            what to write
    versions.wrote(version)     it is written: it is the newest now
    versions.saved()            a checkpoint names the newest ones

    number  of the last checkpoint
    """

    def __init__(
        self, partitions: int, newest: Iterable[Version] | None = None, number: int = 0
    ) -> None:
        self.newest = [Version(p, 0) for p in range(partitions)] if newest is None else [*newest]
        self.number = number

    @property
    def changed(self) -> list[Version]:
        """What was written since the last checkpoint."""
        return [version for version in self.newest if version.number > self.number]

    def current(self, partition: int) -> Version:
        """Return the newest version of a partition; number 0: it was never written."""
        return self.newest[partition]

    def next(self, partition: int) -> Version:
        """Return what is written next, in place of what was written since the last checkpoint."""
        return Version(partition, self.number + 1)

    def wrote(self, version: Version) -> None:
        """Note that the write of ``version`` was requested."""
        self.newest[version.partition] = version

    def dropped(self, partition: int) -> None:
        """Note that another rank has a partition now."""
        self.newest[partition] = Version(partition, 0)

    def saved(self) -> None:
        """Note that the next checkpoint is written."""
        self.number += 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One checkpoint, read.

    number     how many were written before it, and it
    geometry   of the table
    versions   of every partition
    tensors    relations and whatever else the job gave, by name, in host memory
    about      what the job said of it: epoch, position, losses, options
    """

    name: str
    number: int
    geometry: Geometry
    versions: tuple[Version, ...]
    tensors: dict[str, Array]
    about: dict[str, Any]


class Checkpoints:
    """The checkpoints of one folder.

    Checkpoints(folder).load("last")
    checkpoints.save(geometry, versions, number, tensors, about, names=("last", "best"))
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str = LAST) -> bool:
        """Whether there is a checkpoint of that name."""
        return (self.folder / f"{name}.json").is_file()

    def versions(self, geometry: Geometry) -> Versions:
        """Return where to resume from: the versions of the last checkpoint, or initial ones."""
        if not self.has(LAST):
            return Versions(geometry.partitions, number=self._number(BEST))
        body = self._manifest(LAST)
        _check_geometry(self.folder / f"{LAST}.json", body, geometry)
        return Versions(geometry.partitions, _versions(body), int(body["number"]))

    def has_all(self) -> bool:
        """Whether there is a last checkpoint, and every partition was written by then."""
        return self.has(LAST) and all(v.number for v in _versions(self._manifest(LAST)))

    def load(self, name: str = LAST) -> Checkpoint:
        """Read a checkpoint; what it names is compared with its checksums.

        Partitions are compared when they are read. Where training writes the next one meanwhile,
        and removes the files of this, that one is read.
        """
        return self.retried(name, lambda: self._load(name))

    def retried(self, name: str, read: Callable[[], R]) -> R:
        """Return what ``read`` makes of a checkpoint, of a newer one where that took its place.

        Training keeps what its checkpoint names until it has written the next. So a file that is
        not as the manifest says is damaged only if the manifest is the same as before.
        """
        for _ in range(_ATTEMPTS):
            before = self.mark(name)
            try:
                return read()
            except (GraphError, FileNotFoundError) as error:
                if self.mark(name) == before:
                    raise
                last = error
        raise PenstockError(
            f"{self.folder / f'{name}.json'} was replaced {_ATTEMPTS} times while it was read",
            expected="a checkpoint that lasts until it is read",
            got="a run that writes the next one sooner",
            remedy="Wait for the end of the run, or train with more --checkpoint-minutes",
        ) from last

    def mark(self, name: str) -> bytes:
        """Return what identifies a checkpoint, empty where there is none.

        That is its manifest, which counts how many were written.
        """
        try:
            return (self.folder / f"{name}.json").read_bytes()
        except FileNotFoundError:
            return b""

    def _load(self, name: str) -> Checkpoint:
        from safetensors.numpy import load_file

        body = self._manifest(name)
        with _format(name).reading(self.folder):
            entries = read_file_table(body["files"])
            (entry,) = entries.values()
            geometry = Geometry(**body["geometry"])
            versions, number, about = _versions(body), int(body["number"]), body["about"]
            if not isinstance(about, dict):
                raise ValueError(f"{about!r} for about")
        tensors = load_file(self._checked(entry, name))
        return Checkpoint(name, number, geometry, versions, tensors, about)

    def save(
        self,
        geometry: Geometry,
        versions: Sequence[Version],
        number: int,
        tensors: Mapping[str, Array],
        about: dict[str, Any],
        *,
        names: Iterable[str] = (LAST,),
    ) -> None:
        """Write checkpoint ``number`` of published versions under one name or several.

        Where the disk is full, or the process is killed, the checkpoints before are as they were.
        """
        entry = self._save_tensors(f"relations-{number:06d}.safetensors", tensors)
        sync_folder(self.folder)
        # The last one last: it says how good the best is, which therefore has to be there by then.
        for name in sorted(names, key=lambda name: name == LAST):
            form = _format(name)
            body = {
                "format": form.name,
                "version": form.version,
                "number": number,
                "geometry": asdict(geometry),
                "partitions": [version.number for version in versions],
                "files": file_table([entry]),
                "about": about,
            }
            with atomic(self.folder / form.file) as temporary:
                _write(temporary, (json.dumps(body, indent=1, allow_nan=False) + "\n").encode())
            sync_folder(self.folder)
        self._drop_unnamed()

    def _save_tensors(self, name: str, tensors: Mapping[str, Array]) -> FileEntry:
        from safetensors.numpy import save

        arrays = {key: np.ascontiguousarray(array) for key, array in tensors.items()}
        with atomic(self.folder / name) as temporary:
            _write(temporary, save(arrays))
        return file_entry(self.folder, name)

    def _checked(self, entry: FileEntry, name: str) -> Path:
        entry.check_size(self.folder, listed_in=f"{name}.json", remedy=RESTORE)
        entry.check_sum(self.folder, remedy=RESTORE)
        return self.folder / entry.name

    def _manifest(self, name: str) -> dict[str, Any]:
        body = _format(name).load(self.folder)
        with _format(name).reading(self.folder):
            _check_versions(body)
        return body

    def _number(self, name: str) -> int:
        return int(self._manifest(name)["number"]) if self.has(name) else 0

    def _drop_unnamed(self) -> None:
        named = set[str]()
        for body in (self._manifest(name) for name in (LAST, BEST) if self.has(name)):
            named |= {*body["files"], *(version.name for version in _versions(body))}
        for pattern in ("relations-*.safetensors", "nodes-*.table"):
            for path in self.folder.glob(pattern):
                if path.name not in named:
                    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Return when the names in ``folder`` are on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks have no such call
            raise
    finally:
        os.close(fd)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _format(name: str) -> Format:
    return Format(
        name="penstock-embed-checkpoint",
        version=1,
        file=f"{name}.json",
        thing="folder of checkpoints of penstock embed",
        make="Train first",
        restore=RESTORE,
        absent=MissingFile,
    )


def _versions(body: dict[str, Any]) -> tuple[Version, ...]:
    return tuple(Version(partition, number) for partition, number in enumerate(body["partitions"]))


def _check_versions(body: dict[str, Any]) -> None:
    """Raise ValueError unless a manifest has a number, and a version of every partition."""
    geometry, versions, number = Geometry(**body["geometry"]), _versions(body), body["number"]
    if type(number) is not int or number < 1:
        raise ValueError(f"number {number!r}")
    if any(size < (name != "states") for name, size in asdict(geometry).items()):
        raise ValueError(f"a table of {geometry}")
    if len(versions) != geometry.partitions:
        raise ValueError(f"{len(versions)} versions of {geometry.partitions} partitions")
    for one in versions:
        if type(one.number) is not int or not 0 <= one.number <= number:
            raise ValueError(f"version {one.number!r} of partition {one.partition}")


def _check_geometry(path: Path, body: dict[str, Any], geometry: Geometry) -> None:
    if body["geometry"] != asdict(geometry):
        raise CorruptFile(
            f"{path} is a checkpoint of another table",
            expected=str(asdict(geometry)),
            got=str(body["geometry"]),
            remedy="Give the options that it was made with, or train in another folder",
        )
