"""Versions of the partitions of an embedding table, a file each, and what reads and writes them.

    nodes-0003-000012.table    a page that says what it holds, the values, the optimizer's state

A version has the number of the checkpoint that is the first to name it. Until then it is on the
scratch disk of the rank that has the partition, and is written over; then it is moved, or copied,
to the folder of checkpoints, and stays as it is: whatever happens, what a checkpoint names is
whole.

All of a file begins at a multiple of 4 KiB, so that one request after another can go past the page
cache (O_DIRECT). ``PartitionFiles`` (direct.py) reads into host memory, or into a GPU's by way of
pinned buffers; ``KvikioFiles`` (gpu.py) reads into a GPU's by GPUDirect Storage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.arrays import AnyArray

PAGE = 4096
RESTORE = "Restore the file or train again with --overwrite"  # where one of a run is damaged
THREADS = 8  # of a table, which have a request in flight each
CHUNK = 4 << 20  # bytes of one request
_MOST_CHUNKS = 480  # whose sums fit into the page of a file

Slot = Sequence[AnyArray]
"""The memory of a partition: its values and its states, each (rows, width) float32."""


@dataclass(frozen=True)
class Geometry:
    """The sizes of a table.

    partitions  their number
    rows        nodes that a partition can hold; see ``of``
    width       float32 values a node
    states      float32 values of the optimizer for each of them: SGD 0, Adagrad 1, Adam 2
    """

    partitions: int
    rows: int
    width: int
    states: int

    @staticmethod
    def of(partitions: int, rows: int, width: int, states: int) -> Geometry:
        """Return a geometry with ``rows`` rounded up, so that every array is whole pages."""
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
        """Bytes of a file, which are moved to read or to write a partition."""
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
    """One version of a partition, with the number of the checkpoint that is the first to name it.

    Number 0 was never written: it is the initial one, which is computed.
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
