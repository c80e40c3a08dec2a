"""The vectors of all nodes, by partition: of a training run, or of a checkpoint on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import UsageError
from penstock.limits import available_memory
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.storage import Slot
from penstock.workers.embed.storage.direct import PartitionFiles, new_slot, open_table
from penstock.workers.embed.storage.versions import Checkpoint, Checkpoints
from penstock.workers.resources.device import to_device

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

R = TypeVar("R")
# bytes of vectors that are read at once from a partition too large for memory
BLOCK_BYTES = 1 << 28
_MEMORY = 0.5  # share of free memory that a partition and its optimizer state may take


class VectorSource(ABC):
    """Vectors of nodes, one row per node in the order of a layout.

    layout     the position of each node in the order
    relations  (relations, width), followed by inverses; None: the model has none
    """

    layout: NodeLayout
    relations: AnyArray | None

    @abstractmethod
    def parts(self) -> Iterator[tuple[int, AnyArray]]:
        """Yield the first position of each partition, and its vectors, valid until the next."""

    def total(self, sums: AnyArray) -> AnyArray:
        """Return sums over all nodes, given sums over ``parts``: those of other ranks are added."""
        return sums

    def gather(self, positions: Array) -> AnyArray:
        """Return the vectors at some positions of the order: (n, dim)."""
        found = None
        for first, values in self.parts():
            here = np.flatnonzero((positions >= first) & (positions < first + len(values)))
            if found is None:
                # On the device of the source's vectors.
                found = np.zeros_like(values, shape=(len(positions), values.shape[1]))
            found[here] = values[positions[here] - first]
        assert found is not None
        return found


class RankSource(VectorSource):
    """The vectors of one rank in training; ``gather`` and ``total`` combine all ranks.

    Every rank calls both, in the same order.

    held   the partitions of this rank
    whole  whether all of them are in the buffer; otherwise they are on the disk
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        buffer: PartitionBuffer,
        layout: NodeLayout,
        relations: AnyArray | None,
        held: Sequence[int],
        *,
        whole: bool,
        device: bool,
    ) -> None:
        self.comm, self.layout, self.relations = comm, layout, relations
        self.held, self.buffer, self.whole = held, buffer, whole
        self._disk = TableSource(buffer.table, layout, relations, device=device)

    def parts(self) -> Iterator[tuple[int, AnyArray]]:
        """Yield the partitions of this rank."""
        for partition in self.held:
            of = self.buffer.slot if self.whole else self._disk.slot
            yield (
                int(self.layout.starts[partition]),
                of(partition)[0][: self.layout.sizes[partition]],
            )

    def gather(self, positions: Array) -> AnyArray:
        """Return the vectors at some positions of the order, from any rank: (n, dim)."""
        # Rows of other ranks are 0 here, and this rank's are 0 there.
        return self.comm.allreduce(super().gather(positions))

    def total(self, sums: AnyArray) -> AnyArray:
        """Return sums over the parts of all ranks."""
        return self.comm.allreduce(sums)


class TableSource(VectorSource):
    """The partitions of a table on disk, one at a time in memory.

    in_blocks  whether partitions do not fit, so that a block of rows is in memory at a time
    """

    def __init__(
        self,
        table: PartitionFiles,
        layout: NodeLayout,
        relations: AnyArray | None,
        *,
        device: bool = False,
        in_blocks: bool = False,
    ) -> None:
        self.table, self.device, self.in_blocks = table, device, in_blocks
        self.layout, self.relations = layout, relations
        self._memory: Slot | None = None
        self._held: int | None = None

    def parts(self) -> Iterator[tuple[int, AnyArray]]:
        """Read and yield every partition, whole or in blocks."""
        for partition, size in enumerate(self.layout.sizes):
            first = int(self.layout.starts[partition])
            if self.in_blocks:
                for row, rows in self.vectors(partition):
                    block = np.asarray(rows)
                    yield first + row, to_device(block) if self.device else block
            else:
                yield first, self.slot(partition)[0][:size]

    def mapped(self, partition: int) -> list[Array]:
        """Return values and states of a partition, mapped: (rows, values per row) each."""
        self.table.check(partition)
        path, shapes = self.table.path(partition), self.table.geometry.shapes
        values: Array = np.memmap(path, np.float32, "r", 0, shapes[0])
        if not shapes[1][1]:
            return [values]
        return [values, np.memmap(path, np.float32, "r", values.nbytes, shapes[1])]

    def vectors(self, partition: int) -> Iterator[tuple[int, Array]]:
        """Read the vectors of a partition's nodes: yield the first row of a block, and it."""
        values = self.mapped(partition)[0][: self.layout.sizes[partition]]
        most = max(BLOCK_BYTES // (4 * values.shape[1]), 1)
        for row in range(0, len(values), most):
            yield row, values[row : row + most]

    def close(self) -> None:
        """Close the table."""
        self.table.close()

    def slot(self, partition: int) -> Slot:
        """Return values and states of a partition, valid until the next is read."""
        memory = self._memory = self._memory or new_slot(self.table.geometry, device=self.device)
        if self._held != partition:
            self._held = None
            self.table.read(partition, memory).result()
            self._held = partition
        return memory


def check_trained(folder: Path, found: Checkpoint) -> None:
    """Raise unless the checkpoint has all partitions."""
    path = Checkpoints(folder).path(found.name)
    if not found.is_whole:
        raise UsageError(
            f"{path} is of the first epoch, in which not all nodes were trained yet",
            remedy="Train on with --resume, at least to the end of the epoch",
        )


def open_checkpoint(
    folder: Path, name: str, *, device: bool = False
) -> tuple[TableSource, Checkpoint]:
    """Return the vectors of checkpoint ``name`` in the folder of a run's checkpoints.

    device  whether they are read into this worker's GPU; in blocks if memory is short
    """
    found = Checkpoints(folder).load(name)
    check_trained(folder, found)
    layout = NodeLayout.open(folder, found.tensors["starts"])
    in_blocks = found.geometry.bytes > _MEMORY * free_memory(device=device)
    given = folder, found.geometry, found.versions, found.number
    table = open_table(*given, device=device and not in_blocks)
    relations = found.tensors.get("relations")
    source = TableSource(table, layout, relations, device=device, in_blocks=in_blocks)
    return source, found


def free_memory(*, device: bool) -> int:
    """Return the bytes that this process may still allocate on its GPU, or on the host."""
    if not device:
        return available_memory()
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[0])


def read_checkpoint(
    folder: Path, name: str, read: Callable[[TableSource, Checkpoint], R], *, device: bool = False
) -> R:
    """Return the result of ``read`` for the vectors of a checkpoint, all of the same checkpoint.

    Meanwhile, training may write the next checkpoint, and then overwrite partitions of this one: if
    so, ``read`` is called again with the newer checkpoint.
    """

    def attempt() -> R:
        source, found = open_checkpoint(folder, name, device=device)
        try:
            return read(source, found)
        finally:
            source.close()

    return Checkpoints(folder).retried(name, attempt)
