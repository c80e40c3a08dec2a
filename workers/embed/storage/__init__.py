"""The partitions of an embedding table, one file per version, read and written by requests.

    nodes-0003-000012.table    partition 3, version 12: the values, then the optimizer's state

A version has the number of the first checkpoint that names it. Until that checkpoint, the version
is on the scratch disk of the rank that has the partition, and may be overwritten. Then it is moved,
or copied, to the folder of checkpoints, and does not change any more, so the partitions of a
checkpoint are always whole.

Both arrays begin at multiples of 4 KiB, so that requests can bypass the page cache (O_DIRECT).
``PartitionFiles`` (direct.py) reads into host memory, or through pinned buffers into GPU memory;
``KvikioFiles`` (gpu.py) reads into GPU memory by GPUDirect Storage; ``open_table`` chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.arrays import AnyArray

PAGE = 4096
RESTORE = "Restore the file or train again with --overwrite"  # of a damaged table of a run
THREADS = 8  # of a table, each with one request in flight
CHUNK = 4 << 20  # bytes of one request

Slot = tuple[AnyArray, AnyArray]
"""The memory of a partition, float32: values (rows, width) and state (rows, states * width)."""


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
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The shapes of a partition's values and state."""
        return (self.rows, self.width), (self.rows, self.states * self.width)

    @property
    def bytes(self) -> int:
        """Bytes of a partition, in memory and in its file."""
        return 4 * self.rows * self.width * (1 + self.states)


def file_name(partition: int, number: int) -> str:
    """Return the name of the file of one version of a partition."""
    return f"nodes-{partition:04d}-{number:06d}.table"


@dataclass(frozen=True)
class Moved:
    """The bytes that a request moved, its beginning and its end (``time.perf_counter``)."""

    bytes_read: int
    bytes_written: int
    started: float
    ended: float
