"""The vectors of all nodes, by partition: of a training, or of a checkpoint on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.storage import Geometry, Slot, Table, Version, open_table
from penstock.workers.embed.storage.direct import aligned_bytes
from penstock.workers.embed.storage.joined import JoinedTable
from penstock.workers.embed.versions import Checkpoint, Checkpoints, table_path

R = TypeVar("R")


class VectorSource(ABC):
    """Vectors of nodes, whose rows stand in the order of a layout.

    layout     where in the order each node is
    relations  (relations, width), inverses behind them; None: the model has none
    """

    layout: NodeLayout
    relations: Any

    @abstractmethod
    def parts(self) -> Iterator[tuple[int, Any]]:
        """Yield where in the order a partition begins, and its vectors, until the next is asked."""

    def total(self, sums: Any) -> Any:
        """Return sums over ``parts`` as sums over all nodes: parts of other ranks are added."""
        return sums

    def gather(self, places: Array) -> Any:
        """Return the vectors at some places of the order: (n, dim)."""
        found = None
        for first, values in self.parts():
            here = np.flatnonzero((places >= first) & (places < first + len(values)))
            if found is None:
                # Like the source's, on a GPU or not.
                found = np.zeros_like(values, shape=(len(places), values.shape[1]))
            found[here] = values[places[here] - first]
        assert found is not None
        return found


class BufferSource(VectorSource):
    """Those that a training holds in memory: one partition."""

    def __init__(self, buffer: PartitionBuffer, layout: NodeLayout, relations: Any) -> None:
        self.buffer, self.layout, self.relations = buffer, layout, relations

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Yield the one partition."""
        first = self.buffer.first_rows[0]
        yield 0, self.buffer.values[first : first + self.layout.nodes]


class TableSource(VectorSource):
    """Those of a table on disk, in the versions that are given: one partition in memory.

    slot  where that is [default: in memory of its own]
    """

    def __init__(
        self,
        table: Table,
        versions: list[Version],
        layout: NodeLayout,
        relations: Any,
        *,
        device: bool = False,
        slot: Slot | None = None,
    ) -> None:
        self.table, self.versions, self.device = table, versions, device
        self.layout, self.relations, self._slot = layout, relations, slot
        self._held: tuple[int, list[Any]] | None = None

    def parts(self) -> Iterator[tuple[int, Any]]:
        """Read and yield every partition."""
        for partition, size in enumerate(self.layout.sizes):
            yield int(self.layout.starts[partition]), self._read(partition)[0][:size]

    def states(self, partition: int) -> list[Any]:
        """Return a partition with the optimizer's arrays, whole."""
        return self._read(partition)

    def close(self) -> None:
        """Close the table."""
        self.table.close()

    def _read(self, partition: int) -> list[Any]:
        if self._held is not None and self._held[0] == partition:
            return self._held[1]
        slot = self._own_slot() if self._slot is None else list(self._slot)
        self._slot, self._held = slot, None
        self.table.read(self.versions[partition], slot).result()
        self._held = partition, slot
        return slot

    def _own_slot(self) -> list[Any]:
        geometry = self.table.geometry
        shape = geometry.arrays, geometry.rows, geometry.width
        if self.device:
            import cupy

            return list(cupy.empty(shape, np.float32))
        data = aligned_bytes(geometry.slot_bytes(1)).view(np.float32)
        return list(data.reshape(shape))


def check_trained(folder: Path, found: Checkpoint) -> None:
    """Raise where not all partitions were written by a checkpoint."""
    path = folder / f"{found.name}.json"
    if any(version.number == 0 for version in found.versions):
        raise UsageError(
            f"{path} is of the first epoch, in which not all nodes were trained yet",
            remedy="Train on with --resume, at least to the end of the epoch",
        )


def open_checkpoint(
    folder: Path, name: str, *, device: bool = False, slot: Slot | None = None
) -> tuple[TableSource, Checkpoint]:
    """Return the vectors of checkpoint ``name`` in the folder of a run's checkpoints.

    device  whether they are read into this worker's GPU
    slot    where a partition is read to [default: memory of its own]
    """
    found = Checkpoints(folder).load(name)
    check_trained(folder, found)
    layout = NodeLayout.open(folder)
    table = _open_files(folder, found.geometry, device=device)
    relations, versions = found.tensors.get("relations"), list(found.versions)
    return TableSource(table, versions, layout, relations, device=device, slot=slot), found


def read_checkpoint(
    folder: Path, name: str, read: Callable[[TableSource, Checkpoint], R], *, device: bool = False
) -> R:
    """Return what ``read`` makes of the vectors of a checkpoint, all of them of the same one.

    A training may write the next checkpoint meanwhile, and then over the partitions of this one:
    ``read`` is called again then, with the newer one.
    """

    def attempt() -> R:
        source, found = open_checkpoint(folder, name, device=device)
        try:
            return read(source, found)
        finally:
            source.close()

    return Checkpoints(folder).retried(name, attempt)


def _open_files(folder: Path, geometry: Geometry, *, device: bool) -> Table:
    """Open the table of a folder to be read, whether it is one file or one of each rank."""
    tables: list[Table] = []
    try:
        for file in range(geometry.files):
            path = table_path(folder, geometry, file)
            tables.append(open_table(path, geometry, device=device, read_only=True))
    except BaseException:
        for table in tables:
            table.close()
        raise
    return tables[0] if len(tables) == 1 else JoinedTable(tables)


def geometry_of(
    layout: NodeLayout, width: int, states: int, places: int, files: int = 1
) -> Geometry:
    """Return how large the table of a layout is."""
    return Geometry.of(layout.partitions, max(layout.sizes), width, states, places, files)
