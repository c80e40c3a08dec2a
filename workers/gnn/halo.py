"""Rows of ghosts, fetched from the ranks that own them, and their gradients, brought back.

    halo.start(x)           pack, post; compute rows without ghosts, with halo.test() in between
    halo.wait()             now x[owned:] is what the others have
    halo.start_back(dx)     dx[owned:] travels home while rows of owned nodes are computed
    halo.wait_back(dx)      now what came was added to dx[:owned], peer by peer

What arrives is received in place; what is sent home is sent from where it lies. MPI makes no
progress by itself, so messages travel while somebody tests them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from penstock.csr import Array
from penstock.workers.device import to_device
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.local import Local

if TYPE_CHECKING:
    from penstock.workers.communicator import Communicator

_OUT, _BACK = 1, 2  # tags

_unmeasured = nullcontext()


class Halo:
    """One rank's side of these exchanges; one of each direction may be under way.

    overlap     False: what is started is waited for at once; may change between exchanges
    sent_bytes  how much this rank has sent so far
    """

    def __init__(
        self,
        comm: Communicator | None,
        local: Local,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._comm, self.overlap, self._clock = comm, overlap, clock
        self._sends = sorted(local.send.items())
        self._receives = sorted(local.receive.items())
        if comm is not None:
            # Everybody begins with another neighbour.
            self._sends.sort(key=lambda one: (one[0] - comm.rank) % comm.size)
            self._receives.sort(key=lambda one: (comm.rank - one[0]) % comm.size)
        self._alone = comm is None or not (self._sends or self._receives)
        self._rows: dict[bool, dict[int, Any]] = {}
        self._buffers: dict[Any, dict[int, Any]] = {}
        self._out: list[Any] = []
        self._back: list[Any] = []
        self.sent_bytes = 0

    def row_bytes(self, width: int, itemsize: int = 4) -> int:
        """Return how much this rank sends when it fetches rows of ``width`` values."""
        return sum(len(rows) for _, rows in self._sends) * width * itemsize

    def row_bytes_back(self, width: int, itemsize: int = 4) -> int:
        """Return how much this rank sends when it brings their gradients back."""
        rows = sum(int(where.stop - where.start) for _, where in self._receives)
        return rows * width * itemsize

    def start(self, x: Any) -> None:
        """Send the owned rows of ``x`` that others read; receive the ghosts' where they stand.

        Until ``wait``, rows of ghosts are not to be touched.
        """
        if self._comm is None or self._alone:
            return
        assert not self._out, "an exchange is under way"
        with self._span("halo: pack and post"):
            for peer, rows in self._receives:
                self._out.append(self._comm.irecv(x[rows], peer, _OUT))
            buffers, where = self._buffers_of(x, _OUT), self._rows_of(x)
            for peer, _ in self._sends:
                buffer = buffers[peer]
                _take(x, where[peer], buffer)
                self._out.append(self._comm.isend(buffer, peer, _OUT))
                self.sent_bytes += buffer.nbytes
            self._comm.start()
        if not self.overlap:
            self.wait()

    def wait(self) -> None:
        """Return when the rows of ghosts have come."""
        if self._out:
            self._finish(self._out)

    def start_back(self, x: Any) -> None:
        """Send the rows of ghosts to their owners, and begin to receive what others send here.

        Until ``wait_back``, rows of ghosts are not to be touched; those of owned nodes may be.
        """
        if self._comm is None or self._alone:
            return
        assert not self._back, "an exchange is under way"
        with self._span("halo: pack and post"):
            buffers = self._buffers_of(x, _BACK)
            for peer, _ in self._sends:
                self._back.append(self._comm.irecv(buffers[peer], peer, _BACK))
            for peer, rows in self._receives:
                mine = x[rows]
                self._back.append(self._comm.isend(mine, peer, _BACK))
                self.sent_bytes += mine.nbytes
            self._comm.start()
        if not self.overlap:
            self._finish(self._back)

    def wait_back(self, x: Any) -> None:
        """Add what came to the owned rows of ``x``: from the lowest peer first, always."""
        if self._back:
            self._finish(self._back)
        if not self._sends:
            return
        with self._span("halo: add"):
            buffers, where = self._buffers_of(x, _BACK), self._rows_of(x)
            for peer in sorted(buffers):
                _add(x, where[peer], buffers[peer])

    def test(self) -> None:
        """Let messages travel on: to be called between pieces of computation."""
        if self._out or self._back:
            assert self._comm is not None
            with self._span("halo: test"):
                for requests in (self._out, self._back):
                    if requests and self._comm.test(requests):
                        requests.clear()

    def _finish(self, requests: list[Any]) -> None:
        assert self._comm is not None
        with self._span("halo: wait"):
            self._comm.wait(requests)
            requests.clear()

    def _span(self, name: str) -> AbstractContextManager[None]:
        return _unmeasured if self._clock is None else self._clock.span(name, "halo")

    def _buffers_of(self, x: Any, way: int) -> dict[int, Any]:
        """Return what rows of x's width are packed into, or received in, for each peer."""
        key = (way, x.shape[1], x.dtype, isinstance(x, np.ndarray))
        if key not in self._buffers:
            self._buffers[key] = {
                peer: np.empty_like(x, shape=(len(rows), x.shape[1])) for peer, rows in self._sends
            }
        return self._buffers[key]

    def _rows_of(self, x: Any) -> dict[int, Any]:
        """Return the rows that each peer wants, where ``x`` lives."""
        host = isinstance(x, np.ndarray)
        if host not in self._rows:
            self._rows[host] = {p: r if host else to_device(r) for p, r in self._sends}
        return self._rows[host]


def _take(x: Any, rows: Any, buffer: Any) -> None:
    if isinstance(x, np.ndarray):
        np.take(x, rows, axis=0, out=buffer, mode="clip")  # other modes write to a copy first
    else:
        x.take(rows, axis=0, out=buffer)


def _add(x: Any, rows: Any, buffer: Any) -> None:
    """Add to rows, each of which is named once."""
    if isinstance(x, np.ndarray):
        _add_rows(x, rows, buffer)
    else:
        x[rows] += buffer


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_rows(x: Array, rows: Array, buffer: Array) -> None:
    for i in range(len(rows)):
        row = rows[i]
        for feature in range(x.shape[1]):
            x[row, feature] += buffer[i, feature]
