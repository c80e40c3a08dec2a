"""Checkpoints of a table: the version of every partition, while training writes newer ones.

    nodes.table                      every partition, in two or three places (storage); with
                                     several ranks nodes-000.table and so on
    last.safetensors, best.safetensors
                                     one checkpoint each: relations and their optimizer state, which
                                     are not in the table, the version of every partition, and the
                                     job's own description

A checkpoint is written after the partitions are on the disk, and renamed to its name. If the
process is killed at any time, the checkpoint before it remains. Places that a checkpoint names are
not written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.arrays import Array
from penstock.errors import CorruptFile, GraphError, PenstockError
from penstock.workers.embed.storage import Geometry, PartitionFile, Version
from penstock.workers.training import checkpoint

LAST, BEST = "last", "best"
_ATTEMPTS = 5  # reads of a checkpoint that a training run replaces meanwhile
R = TypeVar("R")
V = TypeVar("V", bound="Versions")


def table_path(folder: Path, geometry: Geometry, file: int = 0) -> Path:
    """Return the path of a table in a folder of checkpoints: one file, or one per rank."""
    return folder / ("nodes.table" if geometry.files == 1 else f"nodes-{file:03d}.table")


class Versions:
    """The newest version of each partition, and the place for the next.

    versions.current(3)         the version to read
    versions.next(3)            the version to write, in a place that no checkpoint names
    versions.wrote(version)     its write was requested: it is the newest now
    versions.keep("last")       a checkpoint names the newest versions: their places are kept
    """

    def __init__(self, geometry: Geometry, newest: Iterable[Version] | None = None) -> None:
        self.geometry = geometry
        self.newest = (
            [Version(partition, 0, 0) for partition in range(geometry.partitions)]
            if newest is None
            else list(newest)
        )
        self._kept: dict[str, tuple[Version, ...]] = {}

    def current(self, partition: int) -> Version:
        """Return the newest version of a partition; number 0 if it was never written."""
        return self.newest[partition]

    def next(self, partition: int) -> Version:
        """Return the next version to write, in a place that no checkpoint names."""
        taken = {
            kept[partition].place for kept in self._kept.values() if kept[partition].number > 0
        }
        free = (place for place in range(self.geometry.places) if place not in taken)
        place = next(free, None)
        assert place is not None, "two checkpoints name both places"
        return Version(partition, place, self.newest[partition].number + 1)

    def wrote(self, version: Version) -> None:
        """Record that the write of ``version`` was requested."""
        self.newest[version.partition] = version

    def keep(self, name: str, versions: Iterable[Version] | None = None) -> None:
        """Keep the places that checkpoint ``name`` names [default: the newest versions]."""
        self._kept[name] = tuple(self.newest if versions is None else versions)


class RankVersions(Versions):
    """The versions of the partitions of one of several ranks, in the places of its file.

    versions.dropped(3)   another rank has it now: its place is free unless a checkpoint names it
    """

    def __init__(
        self, geometry: Geometry, file: int, newest: Iterable[Version] | None = None
    ) -> None:
        super().__init__(geometry, newest)
        self.file = file
        for partition, version in enumerate(self.newest):
            if version.file != file:
                self.dropped(partition)
        self._number = max((version.number for version in self.newest), default=0)
        self._writing: dict[int, int] = {}

    def next(self, partition: int) -> Version:
        """Return the next version to write, in a free place."""
        taken = {kept.place for versions in self._kept.values() for kept in versions}
        taken |= {v.place for v in self.newest if v.number > 0 and v.partition != partition}
        taken |= {place for other, place in self._writing.items() if other != partition}
        free = (place for place in range(self.geometry.file_places) if place not in taken)
        place = next(free, None)
        assert place is not None, "this rank has more partitions than its file has places for"
        self._writing[partition] = place
        # One count for all partitions: one that left and came back gets a number that it never had.
        self._number += 1
        return Version(partition, place, self._number, self.file)

    def wrote(self, version: Version) -> None:
        """Record that the write of ``version`` was requested."""
        super().wrote(version)
        self._writing.pop(version.partition, None)

    def dropped(self, partition: int) -> None:
        """Record that this rank does not have a partition any more."""
        self.newest[partition] = Version(partition, 0, 0, self.file)

    def keep(self, name: str, versions: Iterable[Version] | None = None) -> None:
        """Keep the places of this rank's file that checkpoint ``name`` names."""
        named = self.newest if versions is None else versions
        mine = [v for v in named if v.file == self.file and v.number > 0]
        self._number = max([self._number, *(version.number for version in mine)])
        super().keep(name, mine)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One checkpoint that was read.

    number     counts checkpoints, from 1
    geometry   of the table
    versions   of every partition
    tensors    relations and other tensors of the job, by name, in host memory
    about      the job's description: epoch, position, losses, options
    """

    name: str
    number: int
    geometry: Geometry
    versions: tuple[Version, ...]
    tensors: dict[str, Array]
    about: dict[str, Any]


class Checkpoints:
    """The checkpoints of one folder.

    Checkpoints(folder).load("last")              None if it does not exist
    checkpoints.save(table, versions, tensors, about, names=("last", "best"))
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str = LAST) -> bool:
        """Whether there is a checkpoint of that name."""
        return self.path(name).is_file()

    def path(self, name: str = LAST) -> Path:
        """Return the path of the checkpoint of that name."""
        return self.folder / f"{name}.safetensors"

    def versions(self, geometry: Geometry) -> Versions:
        """Return the versions to resume from: those of the last checkpoint, or initial ones.

        The places of the best checkpoint, if it exists, are kept, too.
        """
        return self._with_kept(Versions(geometry, self._newest()))

    def rank_versions(self, geometry: Geometry, file: int) -> RankVersions:
        """Return the same for one of several ranks, which has its own file."""
        return self._with_kept(RankVersions(geometry, file, self._newest()))

    def has_all(self) -> bool:
        """Whether the last checkpoint exists and has every partition."""
        return self.has(LAST) and all(v.number for v in _versions(self._about(LAST)))

    def holders(self, name: str = LAST) -> tuple[int, ...]:
        """Return the rank that had each partition when the checkpoint was written."""
        return tuple(version.file for version in _versions(self._about(name)))

    def _newest(self) -> tuple[Version, ...] | None:
        return _versions(self._about(LAST)) if self.has(LAST) else None

    def _with_kept(self, versions: V) -> V:
        for name in (LAST, BEST):
            if self.has(name):
                about = self._about(name)
                _check_geometry(self.path(name), about, versions.geometry)
                versions.keep(name, _versions(about))
        return versions

    def load(self, name: str = LAST) -> Checkpoint:
        """Read a checkpoint and verify its checksums; partitions are verified when they are read.

        If training replaces the checkpoint meanwhile, the new one is read.
        """
        return self.retried(name, lambda: self._load(name))

    def retried(self, name: str, read: Callable[[], R]) -> R:
        """Return the result of ``read``, called again if a newer checkpoint replaced this one.

        Training keeps the data that its checkpoint names until it has written the next. So data
        that does not match the checkpoint is damaged only if the checkpoint is still the same.
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
            f"{self.path(name)} was replaced {_ATTEMPTS} times while it was read",
            expected="a checkpoint that lasts until it is read",
            got="a run that writes the next one sooner",
            remedy="Wait for the end of the run, or train with more --checkpoint-minutes",
        ) from last

    def mark(self, name: str) -> bytes:
        """Return the header of a checkpoint, which has its SHA-256; empty if there is none."""
        try:
            with self.path(name).open("rb") as file:
                return file.read(int.from_bytes(file.read(8), "little"))
        except FileNotFoundError:
            return b""

    def _load(self, name: str) -> Checkpoint:
        tensors, about = checkpoint.load(self.path(name))
        geometry, versions = _checked(self.path(name), about)
        return Checkpoint(name, about["number"], geometry, versions, tensors, about["about"])

    def save(
        self,
        table: PartitionFile,
        versions: Versions,
        tensors: Mapping[str, Array],
        about: dict[str, Any],
        *,
        names: Iterable[str] = (LAST,),
    ) -> None:
        """Write a checkpoint of the newest versions under one name or several.

        All partitions in memory must have been written (``PartitionBuffer.flush``). If the disk is
        full or the process is killed, earlier checkpoints do not change.
        """
        table.flush()
        names = tuple(names)
        self.write(table.geometry, versions.newest, tensors, about, names=names)
        for name in names:
            versions.keep(name)

    def write(
        self,
        geometry: Geometry,
        versions: Sequence[Version],
        tensors: Mapping[str, Array],
        about: dict[str, Any],
        *,
        names: Iterable[str] = (LAST,),
    ) -> None:
        """Write a checkpoint of versions that are on the disk."""
        before = [self._about(name)["number"] for name in (LAST, BEST) if self.has(name)]
        body = {
            "number": max(before, default=0) + 1,
            "geometry": asdict(geometry),
            "partitions": [[version.place, version.number, version.file] for version in versions],
            "about": about,
        }
        # The last one last: it records the score of the best, which must exist by then.
        for name in sorted(names, key=lambda name: name == LAST):
            checkpoint.save(self.path(name), tensors, body)

    def _about(self, name: str) -> dict[str, Any]:
        about = checkpoint.about_of(self.path(name))
        _checked(self.path(name), about)
        return about


def _versions(about: dict[str, Any]) -> tuple[Version, ...]:
    return tuple(Version(partition, *entry) for partition, entry in enumerate(about["partitions"]))


def _checked(path: Path, about: dict[str, Any]) -> tuple[Geometry, tuple[Version, ...]]:
    """Return the geometry and the versions of a checkpoint, or raise if they are impossible."""
    try:
        geometry, versions = Geometry(**about["geometry"]), _versions(about)
        if type(about["number"]) is not int or about["number"] < 1:
            raise ValueError(f"number {about['number']!r}")
        if not isinstance(about["about"], dict):
            raise ValueError(f"{about['about']!r} for about")
        if any(size < (name != "states") for name, size in asdict(geometry).items()):
            raise ValueError(f"a table of {geometry}")
        places = geometry.places if geometry.files == 1 else geometry.file_places
        if len(versions) != geometry.partitions:
            raise ValueError(f"{len(versions)} versions of {geometry.partitions} partitions")
        for one in versions:
            if not (0 <= one.place < places and 0 <= one.file < geometry.files and one.number >= 0):
                raise ValueError(
                    f"partition {one.partition} in place {one.place} of file {one.file}"
                )
    except (ValueError, KeyError, TypeError) as error:
        raise checkpoint.damaged(path, f"no places of a table: {error}") from error
    return geometry, versions


def _check_geometry(path: Path, about: dict[str, Any], geometry: Geometry) -> None:
    if about["geometry"] != asdict(geometry):
        raise CorruptFile(
            f"{path} is a checkpoint of another table",
            expected=str(asdict(geometry)),
            got=str(about["geometry"]),
            remedy="Give the options that it was made with, or train in another folder",
        )
