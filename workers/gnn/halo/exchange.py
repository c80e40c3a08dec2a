"""The halo exchange: rows of ghosts from the ranks that own them, and their gradients backward.

    halo.start(x)               pack, post; compute interior rows, with halo.test() in between
    halo.wait()                 now x[owned:] holds the others' rows
    halo.start_backward(dx)     dx[owned:] is sent to its owners while owned rows are computed
    halo.wait_backward(dx)      now the received gradients are added to dx[:owned], peer by peer

Rows arrive in place; rows that return to owners are sent from their place, as are contiguous rows.
MPI makes no progress by itself, so messages travel only while a thread tests them. Between GPUs
that NCCL connects, rows travel in a separate stream: ``wait`` makes the computing stream wait for
them, and the host continues to launch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels import kernel
from penstock.workers.comm.exchange import Requests
from penstock.workers.gnn.clock import Clock, Kind
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.resources.device import to_device

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator
    from penstock.workers.gnn.thread_pool import ThreadPool

_FORWARD, _BACKWARD = 1, 2  # tags
# Least values of a piece, some 20 microseconds; most pieces per thread, so that a late thread does
# less.
LEAST, _PIECES = 1 << 15, 4


class Exchanges:
    """Exchanges with other ranks, of rows or of gradients; all ranks start the same, in order.

    overlap     False: an exchange completes at its start; may change between exchanges
    skip_exchange  nothing is exchanged, packed or added: values stay this rank's own, or stale; the
                same on all ranks, it may change between exchanges
    before      called before an exchange that completes at its start
    wait_for    waits for requests of the ranks [default: their own wait]
    """

    kind: Kind

    def __init__(
        self,
        comm: AnyCommunicator,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
        wait_for: Callable[[Requests], None] | None = None,
    ) -> None:
        self._comm, self.overlap, self._clock = comm, overlap, clock or Clock()
        self._wait_for = wait_for or comm.wait
        self.skip_exchange = False
        self.before: Callable[[], None] | None = None
        self._open: tuple[list[Requests], ...] = ([],)

    def test(self) -> None:
        """Make progress; cheap if nothing is open. Call it between pieces of computation."""
        for requests in self._open:
            if requests:
                with self._span("test"):
                    if self._comm.test(requests):
                        requests.clear()

    def _begins(self) -> bool:
        """Return whether there is something to exchange; a rank without peers takes part too."""
        if self._comm.size == 1 or self.skip_exchange:
            return False
        if self.before is not None:
            self.before()
        return True

    def _finish(self, requests: list[Requests]) -> None:
        if requests:
            with self._span("wait"):
                self._wait_for(requests)
                requests.clear()

    def _span(self, what: str) -> AbstractContextManager[None]:
        return self._clock.span(f"{self.kind}: {what}", self.kind)


class Halo(Exchanges):
    """One rank's side of the exchanges of rows; one of each direction may be open."""

    kind = "halo"

    def __init__(
        self, comm: AnyCommunicator, local: LocalGraph, pool: ThreadPool, **how: Any
    ) -> None:
        super().__init__(comm, **how)
        self._pool = pool  # its threads pack and add
        self._sends = sorted(local.send.items())
        self._receives = sorted(local.receive.items())
        # Every rank begins with another neighbour.
        self._sends.sort(key=lambda one: (one[0] - comm.rank) % comm.size)
        self._receives.sort(key=lambda one: (comm.rank - one[0]) % comm.size)
        # In an undirected graph, each of two ranks needs all rows of the other that have ghosts.
        self._together = {p: found for p, rows in self._sends if (found := _one_slice(rows))}
        self._rows: dict[bool, dict[int, AnyArray | slice]] = {}
        self._buffers: dict[tuple[object, ...], dict[int, AnyArray]] = {}
        self._forward: list[Requests] = []
        self._backward: list[Requests] = []
        self._open = self._forward, self._backward
        self._received: dict[int, AnyArray] | None = None  # gradients to add, by peer

    def start(self, x: AnyArray) -> None:
        """Send the owned rows of ``x`` that others read; receive the ghosts' rows in x[owned:].

        Rows of ghosts must not be touched until ``wait``.
        """
        assert not self._forward, "an exchange is open"
        if not self._begins():
            return
        with self._span("pack and post"):
            for peer, rows in self._receives:
                self._forward.append(self._comm.irecv(x[rows], peer, _FORWARD))
            buffers, where = self._buffers_of(x, _FORWARD), self._rows_of(x)
            for peer, _ in self._sends:
                if peer in buffers:
                    buffer = buffers[peer]
                    self._move(kernel("ghost_rows", x).take_rows, x, where[peer], buffer)
                else:  # contiguous rows travel from their place
                    buffer = x[self._together[peer]]
                self._forward.append(self._comm.isend(buffer, peer, _FORWARD))
            self._comm.start()
        if not self.overlap:
            self.wait()

    def wait(self) -> None:
        """Return when the rows of ghosts have arrived."""
        self._finish(self._forward)

    def start_backward(self, x: AnyArray) -> None:
        """Send the rows of ghosts to their owners, and start to receive those for this rank.

        Until ``wait_backward``, rows of ghosts must not be touched; owned rows may be.
        """
        assert self._received is None, "an exchange is open"
        if not self._begins():
            return
        with self._span("pack and post"):
            self._received = self._buffers_of(x, _BACKWARD)
            for peer, _ in self._sends:
                self._backward.append(self._comm.irecv(self._received[peer], peer, _BACKWARD))
            for peer, rows in self._receives:
                self._backward.append(self._comm.isend(x[rows], peer, _BACKWARD))
            self._comm.start()
        if not self.overlap:
            self._finish(self._backward)

    def wait_backward(self, x: AnyArray) -> None:
        """Add the received rows to the owned rows of ``x``, always from the lowest peer first."""
        self._finish(self._backward)
        came, self._received = self._received, None
        if not came:
            return
        with self._span("add"):
            where = self._rows_of(x)
            for peer in sorted(came):
                self._move(kernel("ghost_rows", x).add_rows, x, where[peer], came[peer])

    def _move(
        self,
        move: Callable[[AnyArray, Any, AnyArray], None],
        x: AnyArray,
        rows: AnyArray | slice,
        buffer: AnyArray,
    ) -> None:
        """Pack or add rows: in host memory in pieces, no two of which write to the same row."""
        pieces = len(buffer) * x.shape[1] // LEAST
        if self._pool.threads == 1 or pieces < 2 or not isinstance(rows, np.ndarray):
            move(x, rows, buffer)
            return
        pieces = min(pieces, _PIECES * self._pool.threads)
        cuts = [len(buffer) * i // pieces for i in range(pieces + 1)]
        self._pool.over(cuts, lambda a, b: move(x, rows[a:b], buffer[a:b]), progress=False)

    def _buffers_of(self, x: AnyArray, way: int) -> dict[int, AnyArray]:
        key = (way, x.shape[1], x.dtype, isinstance(x, np.ndarray))
        if key not in self._buffers:
            self._buffers[key] = {
                peer: np.empty_like(x, shape=(len(rows), x.shape[1]))
                for peer, rows in self._sends
                if way == _BACKWARD or peer not in self._together
            }
        return self._buffers[key]

    def _rows_of(self, x: AnyArray) -> dict[int, AnyArray | slice]:
        host = isinstance(x, np.ndarray)
        if host not in self._rows:
            rows: dict[int, AnyArray | slice] = dict(self._sends)
            if not host:
                rows = {p: self._together.get(p) or to_device(r) for p, r in self._sends}
            self._rows[host] = rows
        return self._rows[host]


def _one_slice(rows: Array) -> slice | None:
    """Return consecutive rows as a slice, else None."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) != len(rows) - 1 or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)
