"""Checkpoints of a table: the version of every partition, while training writes newer ones.

    nodes-0003-000012.table          one version of a partition (storage)
    last.safetensors, best.safetensors
                                     one checkpoint each: relations and their optimizer state, which
                                     are not in the table, the version of every partition, and the
                                     job's own description

A checkpoint is written after the partitions are on the disk, and renamed to its name. If the
process is killed at any time, the checkpoint before it remains. Files that a checkpoint names are
not written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from penstock.arrays import Array
from penstock.errors import GraphError, PenstockError
from penstock.workers.embed.storage import Geometry, file_name
from penstock.workers.training import checkpoint

LAST, BEST = "last", "best"
_HEADER = 1 << 20  # bytes that have the SHA-256, in front of tensors
_ATTEMPTS = 5  # reads of a checkpoint that a training run replaces meanwhile
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One checkpoint that was read.

    number     counts checkpoints, from 1
    geometry   of the table
    versions   the number of every partition's version
    tensors    relations and other tensors of the job, by name, in host memory
    about      the job's description: epoch, position, losses, options
    """

    name: str
    number: int
    geometry: Geometry
    versions: tuple[int, ...]
    tensors: dict[str, Array]
    about: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """Whether it has every partition: in the first epoch, some were never written."""
        return all(self.versions)


class Checkpoints:
    """The checkpoints of one folder.

    Checkpoints(folder).load("last")
    checkpoints.save(geometry, versions, number, tensors, about, names=("last", "best"))
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, name: str = LAST) -> bool:
        """Whether there is a checkpoint of that name."""
        return self.path(name).is_file()

    def path(self, name: str = LAST) -> Path:
        """Return the path of the checkpoint of that name."""
        return self.folder / f"{name}.safetensors"

    def versions(self, last: Checkpoint | None) -> tuple[Sequence[int] | None, int]:
        """Return the versions to resume from, None for initial ones, and the last number."""
        # A run that was killed between the two may have a best checkpoint newer than the last.
        number = self._about(BEST)["number"] if self.has(BEST) else 0
        if last is None:
            return None, number
        return last.versions, max(number, last.number)

    def load(self, name: str = LAST) -> Checkpoint:
        """Read a checkpoint and verify its checksum.

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
        """Return the begin of a checkpoint, with its SHA-256; empty if there is none."""
        try:
            with self.path(name).open("rb") as file:
                return file.read(_HEADER)
        except FileNotFoundError:
            return b""

    def _load(self, name: str) -> Checkpoint:
        tensors, about = checkpoint.load(self.path(name))
        geometry, versions = Geometry(**about["geometry"]), tuple(about["partitions"])
        return Checkpoint(name, about["number"], geometry, versions, tensors, about["about"])

    def save(
        self,
        geometry: Geometry,
        versions: Sequence[int],
        number: int,
        tensors: Mapping[str, Array],
        about: dict[str, Any],
        *,
        names: Iterable[str] = (LAST,),
    ) -> None:
        """Write checkpoint ``number`` of published versions under one name or several.

        If the disk is full or the process is killed, earlier checkpoints do not change.
        """
        body = {
            "number": number,
            "geometry": asdict(geometry),
            "partitions": [*versions],
            "about": about,
        }
        # The last one last: it records the score of the best, which must exist by then.
        for name in sorted(names, key=lambda name: name == LAST):
            checkpoint.save(self.path(name), tensors, body)
        self.clean()

    def clean(self) -> None:
        """Remove versions that no checkpoint names, and parts that a killed process left."""
        named = {
            file_name(partition, number)
            for name in (LAST, BEST)
            if self.has(name)
            for partition, number in enumerate(self._about(name)["partitions"])
        }
        for pattern in ("nodes-*.table", ".nodes-*.tmp"):
            for path in self.folder.glob(pattern):
                if path.name not in named:
                    path.unlink(missing_ok=True)

    def _about(self, name: str) -> dict[str, Any]:
        return checkpoint.about_of(self.path(name))
