"""Ranks send partitions to each other between rounds: values and optimizer state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.ranks.rounds import moves_of

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_CHUNK = 64 << 20  # bytes that are exchanged at a time


class Moves:
    """Sends and receives partitions.

    whole    whether the buffer holds all partitions of this rank; otherwise a partition that it
             does not hold is read from the disk, and the one that comes in its place is written
    holders  the current rank of each partition
    bytes, seconds  that this rank sent, and took
    """

    def __init__(
        self, comm: AnyCommunicator, buffer: PartitionBuffer, holders: Sequence[int], *, whole: bool
    ) -> None:
        self.comm, self.buffer = comm, buffer
        self.holders, self.whole = tuple(holders), whole
        self.bytes, self.seconds = 0, 0.0

    @property
    def held(self) -> tuple[int, ...]:
        """The partitions of this rank."""
        return tuple(p for p, rank in enumerate(self.holders) if rank == self.comm.rank)

    def to(self, holders: Sequence[int]) -> None:
        """Send every partition to the rank that trains it next."""
        if tuple(holders) == self.holders:
            return
        begun = time.perf_counter()
        self.buffer.wait()
        if self.whole:
            self.buffer.hold(self.held)
        staying = {p for p in self.held if holders[p] == self.comm.rank}
        for leaving, to, coming, source in moves_of(self.comm.rank, self.holders, holders):
            is_here = leaving in self.buffer.first_rows
            if not is_here:
                self.buffer.take(leaving, staying)
            for tag, array in enumerate(self.buffer.slot(leaving)):
                self._exchange(array, to, source, tag)
            self.buffer.replace(leaving, coming)
            if not is_here:
                self.buffer.put_away(coming)
        self.holders = tuple(holders)
        self.seconds += time.perf_counter() - begun

    def _exchange(self, array: AnyArray, to: int, source: int, tag: int) -> None:
        """Send an array and receive another in its place, some rows at a time."""
        rows = max(1, _CHUNK // max(array[:1].nbytes, 1))
        for first in range(0, len(array) if array.size else 0, rows):
            here = array[first : first + rows]
            coming = np.empty_like(here)
            self.comm.wait([self.comm.irecv(coming, source, tag), self.comm.isend(here, to, tag)])
            here[...] = coming
        self.bytes += array.nbytes
