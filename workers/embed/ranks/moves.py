"""Ranks send partitions to each other between rounds: values and optimizer state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.arrays import AnyArray
from penstock.partition.tournament import moves
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.storage.versions import RankVersions

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_VALUES, _STATE = 0, 1  # tags


class Moves:
    """Sends and receives partitions.

    whole    whether the buffer holds all partitions of this rank; otherwise they are read from, and
             written to, the table on disk
    holders  the current rank of each partition
    bytes, seconds  that this rank sent, and took
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        buffer: PartitionBuffer,
        versions: RankVersions,
        holders: Sequence[int],
        *,
        whole: bool,
    ) -> None:
        self.comm, self.buffer, self.versions = comm, buffer, versions
        self.holders, self.whole = tuple(holders), whole
        self.bytes, self.seconds = 0, 0.0
        self._incoming: list[AnyArray] | None = None

    @property
    def held(self) -> tuple[int, ...]:
        """The partitions of this rank."""
        return tuple(p for p, rank in enumerate(self.holders) if rank == self.comm.rank)

    def to(self, holders: Sequence[int]) -> None:
        """Send every partition to the rank that trains it next."""
        if tuple(holders) == self.holders:
            return
        begun = time.perf_counter()
        if self.whole:
            self.buffer.hold(self.held)
        else:
            self.buffer.empty()
        for step in moves(self.holders, holders):
            mine = [move for move in step if self.comm.rank in move[1:]]
            if not mine:
                continue
            ((leaving, to),) = ((p, there) for p, here, there in mine if here == self.comm.rank)
            ((coming, source),) = ((p, here) for p, here, there in mine if there == self.comm.rank)
            (self._in_memory if self.whole else self._on_disk)(leaving, to, coming, source)
        self.holders = tuple(holders)
        self.seconds += time.perf_counter() - begun

    def _in_memory(self, leaving: int, to: int, coming: int, source: int) -> None:
        outgoing = self.buffer.arrays(leaving)
        if self._incoming is None:  # of one partition: at most one is on its way
            self._incoming = [array.copy() for array in outgoing]
        self._exchange(outgoing, to, self._incoming, source)
        for array, came in zip(outgoing, self._incoming, strict=True):
            array[...] = came
        self.buffer.replace(leaving, coming)
        self.versions.dropped(leaving)

    def _on_disk(self, leaving: int, to: int, coming: int, source: int) -> None:
        buffer = self.buffer
        buffer.take(leaving)
        buffer.receive(coming)
        self._exchange(buffer.arrays(leaving), to, buffer.arrays(coming), source)
        buffer.forget(leaving)
        self.versions.dropped(leaving)  # its place is free for the received one
        buffer.empty()

    def _exchange(
        self, outgoing: Sequence[AnyArray], to: int, incoming: Sequence[AnyArray], source: int
    ) -> None:
        requests = []
        for tag, array in zip((_VALUES, _STATE), incoming, strict=True):
            if array.size:
                requests.append(self.comm.irecv(array, source, tag))
        for tag, array in zip((_VALUES, _STATE), outgoing, strict=True):
            if array.size:
                requests.append(self.comm.isend(array, to, tag))
                self.bytes += array.nbytes
        self.comm.wait(requests)
