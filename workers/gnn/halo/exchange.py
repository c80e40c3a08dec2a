"""Rows of ghosts, fetched from the ranks that own them, and their gradients, brought back.

    halo.start(x)           pack, post; compute rows without ghosts, with halo.test() in between
    halo.wait()             now x[owned:] is what the others have
    halo.start_back(dx)     dx[owned:] travels home while rows of owned nodes are computed
    halo.wait_back(dx)      now what came was added to dx[:owned], peer by peer

Ranks of one host write rows straight into each other's memory (landing.py), and only say by
message that they are there. Who gathers over ghosts alone reads them where they landed:

    halo.start(x, apart=True)
    halo.wait()
    halo.ghosts(x)          (ghosts, width), until the next start

Between hosts, what arrives is received in place; what is sent home is sent from where it lies, and
so are rows that lie together. MPI makes no progress by itself, so messages travel while somebody
tests them. Between GPUs that NCCL connects, rows travel in a stream of their own: ``wait`` lets the
stream that computes wait for them, and the host goes on launching.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.data.local import Local
from penstock.workers.gnn.halo.rows import add_rows, copy_rows, one_slice, take_rows
from penstock.workers.gnn.halo.shared import Landing, near_ranks
from penstock.workers.resources.device import to_device

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator
    from penstock.workers.gnn.thread_pool import Workforce

_OUT, _BACK = 1, 2  # tags
_WORD = np.zeros(1, np.uint8)  # what says that rows were written: its value means nothing

_unmeasured = nullcontext()


class Halo:
    """One rank's side of these exchanges; one of each direction may be under way.

    overlap     False: what is started is waited for at once; may change between exchanges
    leave_out   nothing is exchanged, packed or added: rows of ghosts are whatever was there; the
                same on all ranks, it may change between exchanges
    before      called before an exchange that is waited for at once
    sent_bytes  how much of rows this rank has sent so far, or written into others' memory
    sharing     whether ranks of one host write into each other's memory; without, they send
                messages too. The same on all ranks, it may change between exchanges
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        local: Local,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
        shared: bool = True,
        wait: Callable[[Any], None] | None = None,
        crew: Workforce | None = None,
    ) -> None:
        self._crew = crew  # whose threads pack and add
        self._comm, self.overlap, self._clock = comm, overlap, clock
        self._wait = comm.wait if wait is None else wait
        self.leave_out = False
        self.before: Callable[[], None] | None = None
        self._owned = local.owned
        self._sends = sorted(local.send.items())
        self._receives = sorted(local.receive.items())
        # Everybody begins with another neighbour.
        self._sends.sort(key=lambda one: (one[0] - comm.rank) % comm.size)
        self._receives.sort(key=lambda one: (comm.rank - one[0]) % comm.size)
        # Of two ranks of an undirected graph, each wants all rows of the other that have ghosts.
        self._together = {p: found for p, rows in self._sends if (found := one_slice(rows))}
        self._peers = peers = frozenset({*local.send, *local.receive})
        self._alone = not peers
        self.sharing = shared and comm.size > 1
        self._landings: dict[int, Landing] = {}
        self._words = {way: {p: np.empty(1, np.uint8) for p in peers} for way in (_OUT, _BACK)}
        self._rows: dict[bool, dict[int, Any]] = {}
        self._buffers: dict[Any, dict[int, Any]] = {}
        self._out: list[Any] = []
        self._back: list[Any] = []
        self._moves: list[tuple[Any, Any]] | None = None  # to, from: when ghosts have come
        self._apart: Any = None  # where ghosts have come that were left there
        self._targeted = False  # whether targets_back was called for the next start_back
        self._target: Landing | None = None  # where that said that rows go, if by a landing
        self._came: dict[int, Any] | None = None  # what is to be added, by peer
        self.sent_bytes = 0

    def row_bytes(self, width: int, itemsize: int = 4) -> int:
        """Return how much this rank sends when it fetches rows of ``width`` values."""
        return sum(len(rows) for _, rows in self._sends) * width * itemsize

    def row_bytes_back(self, width: int, itemsize: int = 4) -> int:
        """Return how much this rank sends when it brings their gradients back."""
        rows = sum(int(where.stop - where.start) for _, where in self._receives)
        return rows * width * itemsize

    def start(self, x: Any, *, apart: bool = False) -> None:
        """Send the owned rows of ``x`` that others read; receive the ghosts'.

        They come to x[owned:], or where they are ``apart`` to where ``ghosts`` says. Until ``wait``
        rows of ghosts are not to be touched.
        """
        assert self._moves is None, "an exchange is under way"
        if self._alone and not self.sharing:
            return
        if self.leave_out:
            self._apart = self._stale(x) if apart else None
            return
        if self.before is not None:
            self.before()
        with self._span("halo: pack and post"):
            landing = self._turned(x, _OUT)
            if self._alone:
                return
            shared = landing.shared if landing is not None else frozenset()
            ghosts = x[self._owned :]
            here = landing.here() if landing is not None and shared else ghosts
            self._apart = here if apart else None
            self._moves = []
            for peer, rows in self._receives:
                at = slice(rows.start - self._owned, rows.stop - self._owned)
                if peer not in shared:
                    into = here if apart else ghosts
                    self._out.append(self._comm.irecv(into[at], peer, _OUT))
                elif not apart:
                    self._moves.append((ghosts[at], here[at]))
            self._listen(shared, _OUT, self._out)
            buffers, where = self._buffers_of(x, _OUT, shared), self._rows_of(x)
            for peer, _ in self._sends:
                if landing is not None and peer in shared:
                    buffer = landing.there(peer)
                    take_rows(x, where[peer], buffer, self._crew)
                    self._out.append(self._comm.isend(_WORD, peer, _OUT))
                else:
                    if peer in buffers:
                        buffer = buffers[peer]
                        take_rows(x, where[peer], buffer, self._crew)
                    else:  # rows that lie together travel from where they are
                        buffer = x[self._together[peer]]
                    self._out.append(self._comm.isend(buffer, peer, _OUT))
                self.sent_bytes += buffer.nbytes
            self._answer(shared, self._sends, _OUT, self._out)
            self._comm.start()
        if not self.overlap:
            self.wait()

    def wait(self) -> None:
        """Return when the rows of ghosts have come."""
        if self._out:
            self._finish(self._out)
        moves, self._moves = self._moves, None
        if moves:
            with self._span("halo: copy"):
                for to, source in moves:
                    copy_rows(source, to, self._crew)

    def ghosts(self, x: Any) -> Any:
        """Return the ghosts' rows of the last exchange, that of ``x``; they stay to the next."""
        return x[self._owned :] if self._apart is None else self._apart

    def targets_back(self, x: Any) -> list[tuple[slice, Any]]:
        """Return where each peer's rows of ghosts may be written, for a ``start_back`` to follow.

        Rows of ``x`` stand for themselves; where others are given, ``x`` need not have them.
        """
        if self._alone and not self.sharing:
            return []
        assert self._came is None, "an exchange is under way"
        if self.leave_out:
            return [(rows, x[rows]) for _, rows in self._receives]
        with self._span("halo: pack and post"):
            landing = self._turned(x, _BACK)
        self._targeted, self._target = True, landing
        return [
            (rows, landing.there(p) if landing is not None and p in landing.shared else x[rows])
            for p, rows in self._receives
        ]

    def start_back(self, x: Any) -> None:
        """Send the rows of ghosts to their owners, and begin to receive what others send here.

        Until ``wait_back``, rows of ghosts are not to be touched; those of owned nodes may be.
        """
        assert self._came is None, "an exchange is under way"
        if self.leave_out or (self._alone and not self.sharing):
            return
        if self.before is not None:
            self.before()
        with self._span("halo: pack and post"):
            written, self._targeted = self._targeted, False
            landing = self._target if written else self._turned(x, _BACK)
            if self._alone:
                return
            shared = landing.shared if landing is not None else frozenset()
            if landing is not None and shared:
                here = landing.here()
                self._came = {peer: here[at] for peer, at in self._back_slices().items()}
            else:
                self._came = self._buffers_of(x, _BACK, shared)
            for peer, _ in self._sends:
                if peer not in shared:
                    self._back.append(self._comm.irecv(self._came[peer], peer, _BACK))
            self._listen(shared, _BACK, self._back)
            for peer, rows in self._receives:
                mine = x[rows]
                if landing is not None and peer in shared:
                    if not written:
                        copy_rows(mine, landing.there(peer), self._crew)
                    self._back.append(self._comm.isend(_WORD, peer, _BACK))
                else:
                    self._back.append(self._comm.isend(mine, peer, _BACK))
                self.sent_bytes += mine.nbytes
            self._answer(shared, self._receives, _BACK, self._back)
            self._comm.start()
        if not self.overlap:
            self._finish(self._back)

    def wait_back(self, x: Any) -> None:
        """Add what came to the owned rows of ``x``: from the lowest peer first, always."""
        if self._back:
            self._finish(self._back)
        came, self._came = self._came, None
        if not came:
            return
        with self._span("halo: add"):
            where = self._rows_of(x)
            for peer in sorted(came):
                add_rows(x, where[peer], came[peer], self._crew)

    def test(self) -> None:
        """Let messages travel on: to be called between pieces of computation."""
        if self._out or self._back:
            with self._span("halo: test"):
                for requests in (self._out, self._back):
                    if requests and self._comm.test(requests):
                        requests.clear()

    def _finish(self, requests: list[Any]) -> None:
        with self._span("halo: wait"):
            self._wait(requests)
            requests.clear()

    def _span(self, name: str) -> AbstractContextManager[None]:
        return _unmeasured if self._clock is None else self._clock.span(name, "halo")

    def transports(self, x: Any) -> list[str]:
        """Return by what this rank's rows have travelled, where they are of an array like ``x``."""
        if self._alone:
            return []
        landing = self._landings.get(_OUT) if isinstance(x, np.ndarray) else None
        near = landing.shared if landing is not None and self.sharing else frozenset()
        ways = ["shared memory of one host"] if near else []
        if near != self._peers:
            ways.append(self._comm.transport(x))
        return ways

    def _stale(self, x: Any) -> Any:
        """Return where ghosts' rows of an exchange before lie, as if it were of ``x``."""
        landing = self._landings.get(_OUT) if isinstance(x, np.ndarray) else None
        if landing is None or not self.sharing or not landing.shared:
            return None
        return landing.stale(x.shape[1], x.dtype)

    def _turned(self, x: Any, way: int) -> Landing | None:
        """Return the memory of this exchange; every rank comes here, also one without peers."""
        if not self.sharing or not isinstance(x, np.ndarray):
            return None
        if not self._landings:
            ghosts = {
                peer: slice(rows.start - self._owned, rows.stop - self._owned)
                for peer, rows in self._receives
            }
            near, peers = near_ranks(self._comm), self._words[way]
            self._landings = {
                _OUT: Landing(self._comm, near, ghosts, peers),
                _BACK: Landing(self._comm, near, self._back_slices(), peers),
            }
        landing = self._landings[way]
        landing.turn(x.shape[1], x.dtype)
        return landing

    def _back_slices(self) -> dict[int, slice]:
        """Return where each peer's gradients come, among all that come."""
        ends = np.cumsum([0, *(len(rows) for _, rows in self._sends)])
        return {
            peer: slice(int(ends[i]), int(ends[i + 1])) for i, (peer, _) in enumerate(self._sends)
        }

    def _listen(self, shared: frozenset[int], way: int, requests: list[Any]) -> None:
        for peer in sorted(shared):
            requests.append(self._comm.irecv(self._words[way][peer], peer, way))

    def _answer(
        self, shared: frozenset[int], told: list[Any], way: int, requests: list[Any]
    ) -> None:
        """Give word also to those to whom no rows go: they write here, and must know of this."""
        for peer in sorted(shared.difference(peer for peer, _ in told)):
            requests.append(self._comm.isend(_WORD, peer, way))

    def _buffers_of(self, x: Any, way: int, shared: frozenset[int]) -> dict[int, Any]:
        """Return what messages of x's width are packed into, or received in, for each peer."""
        key = (way, x.shape[1], x.dtype, isinstance(x, np.ndarray))
        if key not in self._buffers:
            self._buffers[key] = {}
        buffers = self._buffers[key]
        for peer, rows in self._sends:
            packed = way == _BACK or peer not in self._together
            if packed and peer not in shared and peer not in buffers:
                buffers[peer] = np.empty_like(x, shape=(len(rows), x.shape[1]))
        return buffers

    def _rows_of(self, x: Any) -> dict[int, Any]:
        """Return the rows that each peer wants, where ``x`` lives; on a GPU perhaps as a slice."""
        host = isinstance(x, np.ndarray)
        if host not in self._rows:
            rows: dict[int, Any] = dict(self._sends)
            if not host:
                rows = {p: self._together.get(p) or to_device(r) for p, r in self._sends}
            self._rows[host] = rows
        return self._rows[host]
