"""The partitions of an embedding table, one file per version, read and written by requests.

    nodes-0003-000012.table    partition 3, version 12: a page that describes the content, the
                               values, the optimizer's state

A version has the number of the first checkpoint that names it. Until that checkpoint, the version
is on the scratch disk of the rank that has the partition, and may be overwritten. Then it is moved,
or copied, to the folder of checkpoints, and does not change any more, so the partitions of a
checkpoint are always whole.

Page and arrays begin at multiples of 4 KiB, so that requests can bypass the page cache (O_DIRECT).
``PartitionFiles`` (direct.py) reads into host memory, or through pinned buffers into GPU memory;
``KvikioFiles`` (gpu.py) reads into GPU memory by GPUDirect Storage; ``open_table`` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.arrays import AnyArray

PAGE = 4096
RESTORE = "Restore the file or train again with --overwrite"  # of a damaged table of a run
THREADS = 8  # of a table, each with one request in flight
CHUNK = 4 << 20  # bytes of one request
_MOST_CHUNKS = 480  # of a partition: their sums fit into the page of a file

Slot = Sequence[AnyArray]
"""The memory of a partition: its values and its states, each (rows, width) float32."""


@dataclass(frozen=True)
class Geometry:
    """The sizes of a table.

    partitions  their number
    rows        nodes that a partition can hold; see ``of``
    width       float32 values per node
    states      optimizer values per float32 value: SGD 0, Adagrad 1, Adam 2
    """

    partitions: int
    rows: int
    width: int
    states: int

    @staticmethod
    def of(partitions: int, rows: int, width: int, states: int) -> Geometry:
        """Return a geometry with ``rows`` rounded up so that every array fills whole pages."""
        step = PAGE // math.gcd(PAGE, 4 * width)
        return Geometry(partitions, -(-max(rows, 1) // step) * step, width, states)

    @property
    def arrays(self) -> int:
        """The number of arrays of a partition: its values, and each state."""
        return 1 + self.states

    @property
    def array_bytes(self) -> int:
        """Bytes of one array of a partition."""
        return 4 * self.rows * self.width

    @property
    def file_bytes(self) -> int:
        """Bytes of a file: a read or a write of a partition moves them all."""
        return PAGE + self.arrays * self.array_bytes

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
    """One version of a partition: its number is that of the first checkpoint that names it.

    Number 0 is the initial version, which is computed and not read.
    """

    partition: int
    number: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"nodes-{self.partition:04d}-{self.number:06d}.table"


@dataclass(frozen=True)
class Moved:
    """The bytes that a request moved, its beginning and its end (``time.perf_counter``)."""

    bytes_read: int
    bytes_written: int
    started: float
    ended: float
