"""Partitions that change hands between rounds: values and optimizer state, rank to rank."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray
from penstock.partition.tournament import moves
from penstock.workers.embed.buffer import PartitionBuffer

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_CHUNK = 64 << 20  # bytes that are exchanged at a time


class Moves:
    """What moves partitions.

    whole    whether the buffer holds all partitions of this rank; else the disk does, from which
             they are read, and to which those that come are written
    holders  the rank of each partition now
    bytes, seconds  sent by this rank, and spent
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
        """Bring every partition to the rank that is to have it."""
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
            if not self.whole:
                self.buffer.take(leaving)
            for tag, array in enumerate(self.buffer.arrays(leaving)):
                self._exchange(array, to, source, tag)
            self.buffer.replace(leaving, coming)
            if not self.whole:
                self.buffer.empty()
        self.holders = tuple(holders)
        self.seconds += time.perf_counter() - begun

    def _exchange(self, array: AnyArray, to: int, source: int, tag: int) -> None:
        """Send rows and put those that come in their place, some at a time."""
        rows = max(1, _CHUNK // max(array[:1].nbytes, 1))
        for first in range(0, len(array) if array.size else 0, rows):
            here = array[first : first + rows]
            coming = np.empty_like(here)
            self.comm.wait([self.comm.irecv(coming, source, tag), self.comm.isend(here, to, tag)])
            here[...] = coming
        self.bytes += array.nbytes
