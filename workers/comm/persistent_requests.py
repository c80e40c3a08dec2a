"""An exchange that repeats with the same arrays, such as a halo's.

    halo = comm.persistent(sends=[(border, right, 0)], receives=[(ghosts, left, 0)])
    for step in range(steps):
        halo.start()
        ...                     # compute what needs no ghosts
        halo.wait()

MPI and Python set the messages up once: a round costs less than the same messages sent one by one
with mpi4py.
"""

from __future__ import annotations

from array import array as numbers
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.arrays import AnyArray
from penstock.workers.comm.exchange_mpi import as_bytes
from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.single import Message

if TYPE_CHECKING:
    from penstock.workers.comm.communicator import Communicator


class PersistentRequests:
    """Messages between this rank and others, in the same arrays of the host each time."""

    def __init__(
        self, owner: Communicator, sends: Sequence[Message], receives: Sequence[Message]
    ) -> None:
        self._owner, self._receives = owner, receives
        self._kept: list[AnyArray] = []  # MPI writes to these arrays
        self.requests: list[Any] = []
        self._under_way = False
        mpi, comm = load_mpi(), owner.mpi
        for position, (one, rank, tag) in enumerate([*receives, *sends]):
            owner.check_message(rank, tag)
            self._kept.append(as_bytes(one))
            make = comm.Recv_init if position < len(receives) else comm.Send_init
            self.requests.append(make(self._kept[-1], rank, tag))
        self._start_all, self._wait_all = mpi.Prequest.Startall, owner.waiter.wait_at
        self._addresses = numbers("q", map(mpi._addressof, self.requests))
        self._at, self._count = self._addresses.buffer_info()

    def start(self) -> None:
        """Start one round; MPI owns the arrays until ``wait``."""
        self._under_way = True
        self._start_all(self.requests)

    def wait(self, timeout: float | None = None) -> None:
        """Return when the round is done: received and sent."""
        timeout = self._owner.wait_timeout if timeout is None else timeout
        self._wait_all(self._at, self._count, timeout)
        self._under_way = False

    def close(self) -> None:
        """Free the messages, between rounds; open ones are freed with the gang."""
        for request in self.requests:
            request.Free()
        self.requests.clear()
        self._owner.forget(self)

    # For the communicator that owns this

    def withdraw(self) -> bool:
        """Withdraw a round after a failure; return whether messages are still open."""
        if not self._under_way:
            return False
        done = 0
        for position, request in enumerate(self.requests):
            with suppress(load_mpi().Exception):  # errors do not matter now
                if position < len(self._receives):
                    request.Cancel()
                done += request.Test()
        return done < len(self.requests)
