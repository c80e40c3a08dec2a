"""Shared memory of a rank into which others on its host write rows, instead of sending them.

    halo = SharedHalo(comm, on_host, receive, peers)  receive: {peer: slice of the rows it writes}
    halo.swap(width, dtype)                           every rank, before each exchange
    halo.rows_of(peer)[...] = rows                    in the memory of the peer
    halo.received()                                   (rows, width), once the peers have signalled

The memory has no name: a rank opens another's through that one's open file, so a killed rank leaves
nothing behind. Peers that cannot be opened are not in ``shared``.

Why no row is overwritten while it is read: there are two buffers, and exchange n uses number n % 2.
In every exchange the two ranks of a pair signal to each other that they have written, even if rows
go one way only, and wait for each other's signal. A rank swaps to exchange n only when it is done
with the rows of n - 1. So a writer of exchange n has the reader's signal of n - 1, which was sent
after the reader had swapped to n - 1 and so was done with n - 2, the last use of this buffer. Newly
allocated memory has no readers.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import Array

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


def host_identity() -> tuple[str, ...] | None:
    """Return what ranks share that can open each other's memory; None: impossible here."""
    if not hasattr(os, "memfd_create"):
        return None
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # A process id is valid within its namespace only.
        return socket.gethostname(), boot, str(Path("/proc/self/ns/pid").readlink())
    return None


class HostRanks(NamedTuple):
    """The ranks on this host, and whether any two ranks share a host."""

    ranks: frozenset[int]
    any_rank: bool


def ranks_on_host(comm: AnyCommunicator) -> HostRanks:
    """Return the ranks on this host; every rank calls it."""
    hosts = comm.allgather(host_identity())
    known = [each for each in hosts if each is not None]
    mine = hosts[comm.rank]
    ranks = {r for r, each in enumerate(hosts) if each is not None and each == mine}
    return HostRanks(frozenset(ranks - {comm.rank}), len(set(known)) < len(known))


class _Offer(NamedTuple):
    """A rank's memory: its location, and where each peer's rows go."""

    pid: int
    file: int
    identity: tuple[int, int]
    half: int
    slices: dict[int, tuple[int, int]]


@dataclass
class _Memory:
    memory: mmap.mmap
    half: int

    def rows(self, number: int, first: int, last: int, width: int, dtype: DTypeLike) -> Array:
        dtype = np.dtype(dtype)
        offset = number * self.half + first * width * dtype.itemsize
        count = (last - first) * width
        flat: Array = np.frombuffer(self.memory, dtype, count, offset if count else 0)
        return flat.reshape(last - first, width)


class SharedHalo:
    """One rank's memory for one direction of exchanges, and access to that of its peers.

    shared  peers that write here and into whose memory this rank writes: the same on both sides
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        on_host: HostRanks,
        slices: Mapping[int, slice],
        peers: Iterable[int],
    ) -> None:
        self._comm, self._on_host = comm, on_host
        self._slices = {p: (int(one.start), int(one.stop)) for p, one in slices.items()}
        self._rows = max((last for _, last in self._slices.values()), default=0)
        self._peers = frozenset(peers) & on_host.ranks
        self.shared: frozenset[int] = frozenset()
        self._mine: _Memory | None = None
        self._theirs: dict[int, tuple[_Memory, int, int]] = {}
        self._widest = 0  # bytes of a row that fit
        self._number, self._width = 0, 0
        self._dtype: np.dtype[Any] = np.dtype(np.float32)

    def swap(self, width: int, dtype: DTypeLike) -> None:
        """Switch to the other buffer, for rows of ``width`` values: all ranks swap together.

        If these are wider than any before, all allocate.
        """
        self._number, self._width, self._dtype = 1 - self._number, width, np.dtype(dtype)
        wanted = width * self._dtype.itemsize
        if wanted > self._widest:
            self._widest = wanted
            if self._on_host.any_rank:
                self._allocate()

    def received(self) -> Array:
        """Return the received rows, including those of peers that are not ``shared``."""
        assert self._mine is not None, "no rank writes here"
        return self._mine.rows(self._number, 0, self._rows, self._width, self._dtype)

    def stale(self, width: int, dtype: DTypeLike) -> Array | None:
        """Return the last exchange's rows as rows of ``width`` values; None: they do not fit.

        Only while no peer is going to write: all ranks leave exchanges out.
        """
        if self._mine is None or width * np.dtype(dtype).itemsize > self._widest:
            return None
        return self._mine.rows(self._number, 0, self._rows, width, dtype)

    def rows_of(self, peer: int) -> Array:
        """Return the place of this rank's rows in the memory of one of ``shared``."""
        memory, first, last = self._theirs[peer]
        return memory.rows(self._number, first, last, self._width, self._dtype)

    def _allocate(self) -> None:
        self._mine, self._theirs = None, {}  # memory still in use stays until then
        file = -1
        try:
            offer = None
            # Not enough memory on either side: these send messages.
            with suppress(OSError):
                if self._peers:
                    file = os.memfd_create("penstock rows", os.MFD_CLOEXEC)
                    self._mine, offer = self._create(file)
            offers = self._comm.allgather(offer)
            for peer in self._peers if offer is not None else ():
                with suppress(OSError):
                    self._open(peer, offers[peer])
            reached = self._comm.allgather(sorted(self._theirs))  # all have opened what they can
        finally:
            if file >= 0:
                os.close(file)
        me = self._comm.rank
        self.shared = frozenset(peer for peer in self._theirs if me in reached[peer])
        if not self.shared:
            self._mine = None

    def _create(self, file: int) -> tuple[_Memory, _Offer]:
        page = mmap.PAGESIZE
        half = max(1, -(-self._rows * self._widest // page)) * page
        os.posix_fallocate(file, 0, 2 * half)  # an error now, not when the memory is touched
        memory = _Memory(mmap.mmap(file, 2 * half), half)
        status = os.fstat(file)
        identity = status.st_dev, status.st_ino
        return memory, _Offer(os.getpid(), file, identity, half, self._slices)

    def _open(self, peer: int, offer: _Offer | None) -> None:
        if offer is None:
            return
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(f"/proc/{offer.pid}/fd/{offer.file}", flags)
        try:
            status = os.fstat(file)
            if (status.st_dev, status.st_ino) != offer.identity:
                return
            memory = _Memory(mmap.mmap(file, 2 * offer.half), offer.half)
        finally:
            os.close(file)
        first, last = offer.slices.get(self._comm.rank, (0, 0))
        self._theirs[peer] = memory, first, last
