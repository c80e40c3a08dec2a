"""The vectors of all nodes while several ranks train; each rank has those of its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.arrays import AnyArray, Array
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import TableSource, VectorSource
from penstock.workers.embed.storage import Version

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


class RankSource(VectorSource):
    """The vectors of one rank; ``gather`` and ``total`` combine all ranks.

    Every rank calls both, in the same order. Partitions are in the buffer or on the disk.
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        layout: NodeLayout,
        relations: AnyArray | None,
        held: Sequence[int],
        *,
        buffer: PartitionBuffer,
        versions: Sequence[Version] | None = None,
        device: bool = False,
    ) -> None:
        self.comm, self.layout, self.relations = comm, layout, relations
        self.held, self.buffer = held, buffer
        self._disk = None
        if versions is not None:
            self._disk = TableSource(buffer.table, list(versions), layout, relations, device=device)

    def parts(self) -> Iterator[tuple[int, AnyArray]]:
        """Yield the partitions of this rank."""
        for partition in self.held:
            if self._disk is None:
                values = self.buffer.arrays(partition)[0]
            else:
                values = self._disk.optimizer_states(partition)[0]
            yield int(self.layout.starts[partition]), values[: self.layout.sizes[partition]]

    def gather(self, positions: Array) -> AnyArray:
        """Return the vectors at some positions of the order, from any rank: (n, dim)."""
        # Rows of other ranks are 0 here, and this rank's are 0 there.
        return self.comm.allreduce(super().gather(positions))

    def total(self, sums: AnyArray) -> AnyArray:
        """Return sums over the parts of all ranks."""
        return self.comm.allreduce(sums)
