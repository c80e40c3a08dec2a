"""The halo exchange: rows of ghosts from the ranks that own them, and their gradients backward.

    halo.start(x)               pack, post; compute interior rows, with halo.test() in between
    halo.wait()                 now x[owned:] holds the others' rows
    halo.start_backward(dx)     dx[owned:] is sent to its owners while owned rows are computed
    halo.wait_backward(dx)      now the received gradients are added to dx[:owned], peer by peer

Ranks of one host write rows into each other's shared memory (shared.py), and only signal them by
message. An aggregation over ghosts alone reads them there:

    halo.start(x, separate=True)
    halo.wait()
    halo.ghosts(x)          (ghosts, width), until the next start

Between hosts, rows arrive in place; rows that return to owners are sent from their place, as are
contiguous rows. MPI makes no progress by itself, so messages travel only while a thread tests them.
Between GPUs that NCCL connects, rows travel in a separate stream: ``wait`` makes the computing
stream wait for them, and the host continues to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.workers.comm.exchange import Requests
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.halo.rows import add_rows, copy_rows, one_slice, take_rows
from penstock.workers.gnn.halo.shared import SharedHalo, ranks_on_host
from penstock.workers.resources.device import to_device

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator
    from penstock.workers.gnn.thread_pool import ThreadPool

_FORWARD, _BACKWARD = 1, 2  # tags
_SIGNAL = np.zeros(1, np.uint8)  # signals written rows; its value has no meaning

_unmeasured = nullcontext()


class Halo:
    """One rank's side of these exchanges; one of each direction may be open.

    overlap     False: an exchange completes at its start; may change between exchanges
    skip_exchange  nothing is exchanged, packed or added: rows of ghosts keep stale values; the same
                on all ranks, it may change between exchanges
    before      called before an exchange that completes at its start
    sent_bytes  bytes of rows that this rank has sent, or written into others' memory
    sharing     whether ranks of one host write into each other's memory, or send messages too. The
                same on all ranks, it may change between exchanges
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        local: LocalGraph,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
        shared: bool = True,
        wait: Callable[[Requests], None] | None = None,
        pool: ThreadPool | None = None,
    ) -> None:
        self._pool = pool  # its threads pack and add
        self._comm, self.overlap, self._clock = comm, overlap, clock
        self._wait = comm.wait if wait is None else wait
        self.skip_exchange = False
        self.before: Callable[[], None] | None = None
        self._owned = local.owned
        self._sends = sorted(local.send.items())
        self._receives = sorted(local.receive.items())
        # Every rank begins with another neighbour.
        self._sends.sort(key=lambda one: (one[0] - comm.rank) % comm.size)
        self._receives.sort(key=lambda one: (comm.rank - one[0]) % comm.size)
        # In an undirected graph, each of two ranks needs all rows of the other that have ghosts.
        self._together = {p: found for p, rows in self._sends if (found := one_slice(rows))}
        self._peers = peers = frozenset({*local.send, *local.receive})
        self._alone = not peers
        self.sharing = shared and comm.size > 1
        self._shared_halos: dict[int, SharedHalo] = {}
        self._signals = {
            way: {p: np.empty(1, np.uint8) for p in peers} for way in (_FORWARD, _BACKWARD)
        }
        self._rows: dict[bool, dict[int, AnyArray | slice]] = {}
        self._buffers: dict[tuple[object, ...], dict[int, AnyArray]] = {}
        self._forward: list[Requests] = []
        self._backward: list[Requests] = []
        # To and from, once ghosts have arrived.
        self._copies: list[tuple[AnyArray, AnyArray]] | None = None
        self._separate: AnyArray | None = None  # where separate ghosts arrived
        self._targeted = False  # whether targets_backward was called for the next start_backward
        # the rows that it assigned; None: rows travel in messages
        self._target: SharedHalo | None = None
        self._received: dict[int, AnyArray] | None = None  # gradients to add, by peer
        self.sent_bytes = 0

    def start(self, x: AnyArray, *, separate: bool = False) -> None:
        """Send the owned rows of ``x`` that others read; receive the ghosts' rows.

        They are written to x[owned:], or if ``separate`` to the result of ``ghosts``. Rows of
        ghosts must not be touched until ``wait``.
        """
        assert self._copies is None, "an exchange is open"
        if self._alone and not self.sharing:
            return
        if self.skip_exchange:
            self._separate = self._stale(x) if separate else None
            return
        if self.before is not None:
            self.before()
        with self._span("halo: pack and post"):
            shared_halo = self._swapped(x, _FORWARD)
            if self._alone:
                return
            shared = shared_halo.shared if shared_halo is not None else frozenset()
            ghosts = x[self._owned :]
            here = shared_halo.received() if shared_halo is not None and shared else ghosts
            self._separate = here if separate else None
            self._copies = []
            for peer, rows in self._receives:
                at = slice(rows.start - self._owned, rows.stop - self._owned)
                if peer not in shared:
                    into = here if separate else ghosts
                    self._forward.append(self._comm.irecv(into[at], peer, _FORWARD))
                elif not separate:
                    self._copies.append((ghosts[at], here[at]))
            self._receive_signals(shared, _FORWARD, self._forward)
            buffers, where = self._buffers_of(x, _FORWARD, shared), self._rows_of(x)
            for peer, _ in self._sends:
                if shared_halo is not None and peer in shared:
                    buffer = shared_halo.rows_of(peer)
                    take_rows(x, where[peer], buffer, self._pool)
                    self._forward.append(self._comm.isend(_SIGNAL, peer, _FORWARD))
                else:
                    if peer in buffers:
                        buffer = buffers[peer]
                        take_rows(x, where[peer], buffer, self._pool)
                    else:  # contiguous rows travel from their place
                        buffer = x[self._together[peer]]
                    self._forward.append(self._comm.isend(buffer, peer, _FORWARD))
                self.sent_bytes += buffer.nbytes
            self._send_signals(shared, self._sends, _FORWARD, self._forward)
            self._comm.start()
        if not self.overlap:
            self.wait()

    def wait(self) -> None:
        """Return when the rows of ghosts have arrived."""
        if self._forward:
            self._finish(self._forward)
        moves, self._copies = self._copies, None
        if moves:
            with self._span("halo: copy"):
                for to, source in moves:
                    copy_rows(source, to, self._pool)

    def ghosts(self, x: AnyArray) -> AnyArray:
        """Return the ghosts' rows of the last exchange, of ``x``; they stay until the next."""
        return x[self._owned :] if self._separate is None else self._separate

    def targets_backward(self, x: AnyArray) -> list[tuple[slice, AnyArray]]:
        """Return where to write each peer's rows of ghosts before ``start_backward``.

        Rows may be those of ``x`` itself; others need not be written to ``x``.
        """
        if self._alone and not self.sharing:
            return []
        assert self._received is None, "an exchange is open"
        if self.skip_exchange:
            return [(rows, x[rows]) for _, rows in self._receives]
        with self._span("halo: pack and post"):
            shared_halo = self._swapped(x, _BACKWARD)
        self._targeted, self._target = True, shared_halo
        return [
            (
                rows,
                shared_halo.rows_of(p)
                if shared_halo is not None and p in shared_halo.shared
                else x[rows],
            )
            for p, rows in self._receives
        ]

    def start_backward(self, x: AnyArray) -> None:
        """Send the rows of ghosts to their owners, and start to receive those for this rank.

        Until ``wait_backward``, rows of ghosts must not be touched; owned rows may be.
        """
        assert self._received is None, "an exchange is open"
        if self.skip_exchange or (self._alone and not self.sharing):
            return
        if self.before is not None:
            self.before()
        with self._span("halo: pack and post"):
            written, self._targeted = self._targeted, False
            shared_halo = self._target if written else self._swapped(x, _BACKWARD)
            if self._alone:
                return
            shared = shared_halo.shared if shared_halo is not None else frozenset()
            if shared_halo is not None and shared:
                here = shared_halo.received()
                self._received = {peer: here[at] for peer, at in self._back_slices().items()}
            else:
                self._received = self._buffers_of(x, _BACKWARD, shared)
            for peer, _ in self._sends:
                if peer not in shared:
                    self._backward.append(self._comm.irecv(self._received[peer], peer, _BACKWARD))
            self._receive_signals(shared, _BACKWARD, self._backward)
            for peer, rows in self._receives:
                mine = x[rows]
                if shared_halo is not None and peer in shared:
                    if not written:
                        copy_rows(mine, shared_halo.rows_of(peer), self._pool)
                    self._backward.append(self._comm.isend(_SIGNAL, peer, _BACKWARD))
                else:
                    self._backward.append(self._comm.isend(mine, peer, _BACKWARD))
                self.sent_bytes += mine.nbytes
            self._send_signals(shared, self._receives, _BACKWARD, self._backward)
            self._comm.start()
        if not self.overlap:
            self._finish(self._backward)

    def wait_backward(self, x: AnyArray) -> None:
        """Add the received rows to the owned rows of ``x``, always from the lowest peer first."""
        if self._backward:
            self._finish(self._backward)
        came, self._received = self._received, None
        if not came:
            return
        with self._span("halo: add"):
            where = self._rows_of(x)
            for peer in sorted(came):
                add_rows(x, where[peer], came[peer], self._pool)

    def test(self) -> bool:
        """Make progress; return whether all have arrived. Call it between pieces of computation."""
        if self._forward or self._backward:
            with self._span("halo: test"):
                for requests in (self._forward, self._backward):
                    if requests and self._comm.test(requests):
                        requests.clear()
        return not (self._forward or self._backward)

    def _finish(self, requests: list[Requests]) -> None:
        with self._span("halo: wait"):
            self._wait(requests)
            requests.clear()

    def _span(self, name: str) -> AbstractContextManager[None]:
        return _unmeasured if self._clock is None else self._clock.span(name, "halo")

    def transports(self, x: AnyArray) -> list[str]:
        """Return how this rank's rows travelled, for arrays like ``x``."""
        if self._alone:
            return []
        shared_halo = self._shared_halos.get(_FORWARD) if isinstance(x, np.ndarray) else None
        by_shared_memory = (
            shared_halo.shared if shared_halo is not None and self.sharing else frozenset()
        )
        ways = ["shared memory of one host"] if by_shared_memory else []
        if by_shared_memory != self._peers:
            ways.append(self._comm.transport(x))
        return ways

    def _stale(self, x: AnyArray) -> AnyArray | None:
        """Return where ghosts' rows of an earlier exchange are, as if it were of ``x``."""
        shared_halo = self._shared_halos.get(_FORWARD) if isinstance(x, np.ndarray) else None
        if shared_halo is None or not self.sharing or not shared_halo.shared:
            return None
        return shared_halo.stale(x.shape[1], x.dtype)

    def _swapped(self, x: AnyArray, way: int) -> SharedHalo | None:
        """Return the memory of this exchange; every rank calls it, even one without peers."""
        if not self.sharing or not isinstance(x, np.ndarray):
            return None
        if not self._shared_halos:
            ghosts = {
                peer: slice(rows.start - self._owned, rows.stop - self._owned)
                for peer, rows in self._receives
            }
            on_host, peers = ranks_on_host(self._comm), self._signals[way]
            self._shared_halos = {
                _FORWARD: SharedHalo(self._comm, on_host, ghosts, peers),
                _BACKWARD: SharedHalo(self._comm, on_host, self._back_slices(), peers),
            }
        shared_halo = self._shared_halos[way]
        shared_halo.swap(x.shape[1], x.dtype)
        return shared_halo

    def _back_slices(self) -> dict[int, slice]:
        ends = np.cumsum([0, *(len(rows) for _, rows in self._sends)])
        return {
            peer: slice(int(ends[i]), int(ends[i + 1])) for i, (peer, _) in enumerate(self._sends)
        }

    def _receive_signals(self, shared: frozenset[int], way: int, requests: list[Requests]) -> None:
        for peer in sorted(shared):
            requests.append(self._comm.irecv(self._signals[way][peer], peer, way))

    def _send_signals(
        self,
        shared: frozenset[int],
        signalled: Sequence[tuple[int, Array | slice]],
        way: int,
        requests: list[Requests],
    ) -> None:
        """Signal also peers that get no rows: they write here, and must wait for this rank."""
        for peer in sorted(shared.difference(peer for peer, _ in signalled)):
            requests.append(self._comm.isend(_SIGNAL, peer, way))

    def _buffers_of(self, x: AnyArray, way: int, shared: frozenset[int]) -> dict[int, AnyArray]:
        key = (way, x.shape[1], x.dtype, isinstance(x, np.ndarray))
        if key not in self._buffers:
            self._buffers[key] = {}
        buffers = self._buffers[key]
        for peer, rows in self._sends:
            packed = way == _BACKWARD or peer not in self._together
            if packed and peer not in shared and peer not in buffers:
                buffers[peer] = np.empty_like(x, shape=(len(rows), x.shape[1]))
        return buffers

    def _rows_of(self, x: AnyArray) -> dict[int, AnyArray | slice]:
        host = isinstance(x, np.ndarray)
        if host not in self._rows:
            rows: dict[int, AnyArray | slice] = dict(self._sends)
            if not host:
                rows = {p: self._together.get(p) or to_device(r) for p, r in self._sends}
            self._rows[host] = rows
        return self._rows[host]
