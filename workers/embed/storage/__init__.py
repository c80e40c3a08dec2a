"""The partitions of an embedding table in one file, read and written by requests.

    nodes.table     PLACE PLACE PLACE ...      every partition has two places, or three
    PLACE           a page that describes the content, the values, the optimizer's state

If several ranks train, each has its own file, nodes-000.table and so on, with the places that its
share of the partitions needs; any of its partitions may be in any place.

A partition is contiguous and begins at a multiple of 4 KiB, so that requests can bypass the page
cache (O_DIRECT). Between two checkpoints a partition is only written to places that no checkpoint
names, so the partitions of a checkpoint are always whole.

``PartitionFile`` is the interface. ``DirectFile`` reads into host memory, or through pinned buffers
into GPU memory; ``KvikioFile`` reads into GPU memory by GPUDirect Storage; ``open_table`` chooses.
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
RESTORE = "Restore the file or train again with --overwrite"  # of a damaged table of a run
THREADS = 8  # of a table, each with one request in flight
CHUNK = 4 << 20  # bytes of one request
_MOST_CHUNKS = 480  # of a partition: their sums fit into the page of a place

Slot = Sequence[AnyArray]
"""The memory of a partition: its values and its states, each (rows, width) float32."""


@dataclass(frozen=True)
class Geometry:
    """The sizes of a table.

    partitions  their number
    rows        nodes that a partition can hold; see ``of``
    width       float32 values per node
    states      optimizer values per float32 value: SGD 0, Adagrad 1, Adam 2
    places      on disk for each partition: 2, or 3 if a best checkpoint is kept beside the last
    files       one per rank; each has an equal share of the places
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
        """Return a geometry with ``rows`` rounded up so that every array fills whole pages."""
        step = PAGE // math.gcd(PAGE, 4 * width)
        return Geometry(partitions, -(-max(rows, 1) // step) * step, width, states, places, files)

    @property
    def arrays(self) -> int:
        """The number of arrays of a partition: its values, and each state."""
        return 1 + self.states

    @property
    def array_bytes(self) -> int:
        """Bytes of one array of a partition."""
        return 4 * self.rows * self.width

    @property
    def partition_bytes(self) -> int:
        """Bytes that a read or a write of a partition moves."""
        return PAGE + self.arrays * self.array_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of a file, allocated when it is made."""
        return self.file_places * self.partition_bytes

    @property
    def file_places(self) -> int:
        """The number of places of a file."""
        return self.partitions * self.places // self.files

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a request: doubled until the sums of all requests fit in a page."""
        chunk = CHUNK
        while self.arrays * -(-self.array_bytes // chunk) > _MOST_CHUNKS:
            chunk *= 2
        return chunk

    def slot_bytes(self, slots: int) -> int:
        """Return the bytes of ``slots`` partitions in a buffer."""
        return slots * self.arrays * self.array_bytes


@dataclass(frozen=True)
class Version:
    """One version of a partition: a number, larger for later writes, and its place.

    Number 0 is the initial version, which is computed and not read.

    place  one of the partition's own or, if there are several files, one of the file's
    file   of the rank that has the partition
    """

    partition: int
    place: int
    number: int
    file: int = 0


@dataclass(frozen=True)
class Moved:
    """The bytes that a request moved, its beginning and its end (``time.perf_counter``)."""

    bytes_read: int
    bytes_written: int
    started: float
    ended: float


class PartitionFile(ABC):
    """A file of partitions. Requests return at once; the future ends when the request is done.

    Until then the slot of the request belongs to the table. The future raises CorruptFile if the
    file does not have the requested version, CapacityError if the disk is full, and PenstockError
    with file and offset if it cannot be read or written.
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
        """Read ``version`` into ``slot``, and verify its sums."""
        return self.exchange(slot, load=version)

    def stream(self, version: Version) -> Iterator[tuple[int, Array]]:
        """Yield ``version`` in the order of the file, in host memory, with its sums verified.

        A piece is the number of an array and some of its bytes, valid until the next is yielded.
        """
        raise NotImplementedError

    @abstractmethod
    def flush(self) -> None:
        """Wait until all writes are on the disk (fdatasync)."""

    @abstractmethod
    def close(self) -> None:
        """Wait for requests in flight, and close the file."""

    def offset(self, version: Version) -> int:
        """Return the offset of the place of ``version``."""
        place = version.place
        if self.geometry.files == 1:
            place += version.partition * self.geometry.places
        return place * self.geometry.partition_bytes


def need_table_disk(path: Path, geometry: Geometry) -> None:
    """Raise CapacityError unless the disk has space for the rest of the table ``path``."""
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
    """Open the table ``path``, and make it if it does not exist.

    Parameters
    ----------
    device
        Whether slots are in a GPU's memory.
    threads
        Number of requests in flight [default: 8].
    read_only
        Whether it must exist, and is only read.

    Raises
    ------
    CapacityError
        The disk has not enough space, or is full.
    MissingFile, TruncatedFile
        With ``read_only``: it does not exist, or is too short.
    """
    from penstock.workers.embed.storage.direct import DirectFile

    if device:
        from penstock.workers.embed.storage.gpu import KvikioFile, has_gds

        if has_gds():
            return KvikioFile(path, geometry, threads=threads, read_only=read_only)
    return DirectFile(path, geometry, threads=threads, device=device, read_only=read_only)
