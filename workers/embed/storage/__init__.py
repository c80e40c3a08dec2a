"""Partitions of an embedding table in one file, and what reads and writes them.

    nodes.table     PLACE PLACE PLACE ...      every partition has two places, or three
    PLACE           a page that says what it holds, the values, the optimizer's state

Where several ranks train, each has a file of its own, nodes-000.table and so on, with as many
places as its share of the partitions needs; any of them may lie in any place.

All of a partition lies together and begins at a multiple of 4 KiB, so that one request after
another can go past the page cache (O_DIRECT). Between two checkpoints a partition is only ever
written to a place that no checkpoint names: whatever happens, those of the checkpoint are whole.

``PartitionFile`` is the interface. ``DirectFile`` reads into host memory, or into a GPU's by way of
pinned buffers; ``KvikioFile`` reads into a GPU's by GPUDirect Storage; ``open_table`` chooses.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from penstock.arrays import AnyArray, Array
from penstock.sizes import need_disk

PAGE = 4096
RESTORE = "Restore the file or train again with --overwrite"  # where one of a run is damaged
THREADS = 8  # of a table, which have a request in flight each
_CHUNK = 4 << 20  # bytes of one request
_MOST_CHUNKS = 480  # whose sums fit into the page of a place

Slot = Sequence[AnyArray]
"""Where a partition is in memory: its values and its states, each (rows, width) float32."""


@dataclass(frozen=True)
class Geometry:
    """How large everything in a table is.

    partitions  how many
    rows        nodes that a partition can hold; see ``of``
    width       float32 values a node
    states      float32 values of the optimizer for each of them: SGD 0, Adagrad 1, Adam 2
    places      on disk for each partition: 2, or 3 where a best checkpoint is kept besides the last
    files       over which the places are divided equally: one for each rank
    """

    partitions: int
    rows: int
    width: int
    states: int
    places: int = 2
    files: int = 1

    @staticmethod
    def of(
        partitions: int, rows: int, width: int, states: int, places: int = 2, files: int = 1
    ) -> Geometry:
        """Return a geometry with ``rows`` rounded up, so that every array is whole pages."""
        step = PAGE // math.gcd(PAGE, 4 * width)
        return Geometry(partitions, -(-max(rows, 1) // step) * step, width, states, places, files)

    @property
    def arrays(self) -> int:
        """How many arrays a partition has: its values, and each state."""
        return 1 + self.states

    @property
    def array_bytes(self) -> int:
        """Bytes of one array of a partition."""
        return 4 * self.rows * self.width

    @property
    def partition_bytes(self) -> int:
        """Bytes that are moved to read or to write a partition."""
        return PAGE + self.arrays * self.array_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of a file, which are taken when it is made."""
        return self.file_places * self.partition_bytes

    @property
    def file_places(self) -> int:
        """How many places a file has."""
        return self.partitions * self.places // self.files

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a request: doubled until the sums of all requests fit in a page."""
        chunk = _CHUNK
        while self.arrays * -(-self.array_bytes // chunk) > _MOST_CHUNKS:
            chunk *= 2
        return chunk

    def slot_bytes(self, slots: int) -> int:
        """Bytes of memory that this many partitions take in a buffer."""
        return slots * self.arrays * self.array_bytes


@dataclass(frozen=True)
class Version:
    """One version of a partition: the how-manieth that was written, and in which of its places.

    Number 0 was never written: it is the initial one, which is computed.

    place  of the partition's own, or of those of the file where there are several files
    file   in which it lies: that of the rank that has the partition
    """

    partition: int
    place: int
    number: int
    file: int = 0


@dataclass(frozen=True)
class Moved:
    """What one request moved, and from when to when (``time.perf_counter``)."""

    bytes_read: int
    bytes_written: int
    started: float
    ended: float


class PartitionFile(ABC):
    """A file of partitions. Requests return at once; the future ends when all of it is done.

    Between a request and the end of its future its slot belongs to the table. Errors come out of
    the future: CorruptFile where the file does not hold the version that is requested,
    CapacityError where the disk is full, PenstockError with file and offset where it cannot be
    read or written.
    """

    path: Path
    geometry: Geometry
    why_not_direct: str | None  # why O_DIRECT is not used; None: it is

    @abstractmethod
    def exchange(
        self, slot: Slot, *, store: Version | None = None, load: Version | None = None
    ) -> Future[Moved]:
        """Write ``slot`` as version ``store``, and then read version ``load`` into it.

        Chunk by chunk, so that reads and writes are in flight together.
        """

    def write(self, slot: Slot, version: Version) -> Future[Moved]:
        """Write ``slot`` as ``version``."""
        return self.exchange(slot, store=version)

    def read(self, version: Version, slot: Slot) -> Future[Moved]:
        """Read ``version`` into ``slot``, and compare with the sums it was written with."""
        return self.exchange(slot, load=version)

    def stream(self, version: Version) -> Iterator[tuple[int, Array]]:
        """Yield ``version`` in the order of the file, compared with its sums, in host memory.

        Each piece, the number of its array and its bytes, is valid until the next one is yielded.
        """
        raise NotImplementedError

    @abstractmethod
    def flush(self) -> None:
        """Return when all that was written is on the disk (fdatasync)."""

    @abstractmethod
    def close(self) -> None:
        """Wait for what is in flight, and close the file."""

    def offset(self, version: Version) -> int:
        """Return where in the file the place of ``version`` begins."""
        place = version.place
        if self.geometry.files == 1:
            place += version.partition * self.geometry.places
        return place * self.geometry.partition_bytes


def need_table_disk(path: Path, geometry: Geometry) -> None:
    """Raise CapacityError unless the disk has space for what the table ``path`` still lacks."""
    there = path.stat().st_blocks * 512 if path.is_file() else 0
    need_disk(
        path.parent,
        max(0, geometry.file_bytes - there),
        f"the table of {geometry.partitions // geometry.files} partitions, "
        f"{geometry.places} places each,",
    )


def open_table(
    path: Path,
    geometry: Geometry,
    *,
    device: bool,
    threads: int = THREADS,
    read_only: bool = False,
) -> PartitionFile:
    """Open the table ``path``, made if it is not there.

    Parameters
    ----------
    device
        Whether slots are in a GPU's memory.
    threads
        How many requests are in flight [default: 8].
    read_only
        Whether it exists already, and is only read.

    Raises
    ------
    CapacityError
        The disk has not enough space, or is full.
    MissingFile, TruncatedFile
        With ``read_only``: it is not there, or not all of it.
    """
    from penstock.workers.embed.storage.direct import DirectFile

    if device:
        from penstock.workers.embed.storage.gpu import KvikioFile, has_gds

        if has_gds():
            return KvikioFile(path, geometry, threads=threads, read_only=read_only)
    return DirectFile(path, geometry, threads=threads, device=device, read_only=read_only)
