"""Gradients, summed over all ranks while the rest of the backward pass is computed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from penstock.workers.gnn.clock import Clock

if TYPE_CHECKING:
    from penstock.workers.communicator import Communicator

_unmeasured = nullcontext()


class GradientSum:
    """Sums of contiguous arrays over all ranks, in place; every rank starts the same, in order.

    sums.start(gradient)      as soon as it is computed; it must not be touched then
    sums.test()               between pieces of computation, so that it travels
    sums.wait()               all that were started are sums now
    sums.overlap = False      from now on, wait for each at once
    """

    def __init__(
        self,
        comm: Communicator | None,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
        wait: Callable[[Any], None] | None = None,
    ) -> None:
        self._comm = comm if comm is not None and comm.size > 1 else None
        self.overlap, self._clock = overlap, clock
        self._wait = wait if wait is not None or comm is None else comm.wait
        self._requests: list[Any] = []
        self.sent_bytes = 0  # summed so far; what MPI sends for that depends on its algorithm

    def start(self, array: Any) -> None:
        """Start to sum an array."""
        if self._comm is None:
            return
        with self._span("gradient: post"):
            self._requests.append(self._comm.iallreduce(array))
            self._comm.start()
            self.sent_bytes += array.nbytes
        if not self.overlap:
            self.wait()

    def test(self) -> None:
        """Let sums travel on; cheap where none is under way."""
        if self._requests:
            assert self._comm is not None
            with self._span("gradient: test"):
                if self._comm.test(self._requests):
                    self._requests.clear()

    def wait(self) -> None:
        """Return when all sums are there."""
        if self._requests:
            assert self._wait is not None
            with self._span("gradient: wait"):
                self._wait(self._requests)
                self._requests.clear()

    def _span(self, name: str) -> AbstractContextManager[None]:
        return _unmeasured if self._clock is None else self._clock.span(name, "gradient")
