"""The allreduce of gradients, overlapped with the rest of the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from penstock.arrays import AnyArray
from penstock.workers.comm.exchange import Requests
from penstock.workers.gnn.clock import Clock

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_unmeasured = nullcontext()


def _nothing() -> None:
    """Wait for a sum that is already complete."""


class GradientReducer:
    """Sums of contiguous arrays over all ranks, in place; every rank starts the same, in order.

    reducer.start(gradient)     as soon as it is computed; it must not be touched then
    reducer.test()              between pieces of computation, so that it travels
    reducer.wait()              all started arrays are sums now
    reducer.total(moments)      the sum, now
    wait = reducer.later(loss)  the sum once wait() returns; other exchanges may stay open

    overlap        False: a sum completes at its start; may change between sums
    skip_exchange  nothing is summed: arrays stay this rank's own
    before         called before a sum that completes at its start
    wait           waits for requests of the ranks, if not their own wait
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        *,
        overlap: bool = True,
        clock: Clock | None = None,
        wait: Callable[[Requests], None] | None = None,
    ) -> None:
        self._comm = comm
        self.overlap, self._clock = overlap, clock
        self._wait = comm.wait if wait is None else wait
        self.skip_exchange = False
        self.before: Callable[[], None] | None = None
        self._requests: list[Requests] = []

    def start(self, array: AnyArray) -> None:
        """Start to sum an array."""
        if self._comm.size == 1 or self.skip_exchange:
            return
        if self.before is not None:
            self.before()
        with self._span("gradient: post"):
            self._requests.append(self._comm.iallreduce(array))
            self._comm.start()
        if not self.overlap:
            self.wait()

    def later(self, array: AnyArray) -> Callable[[], None]:
        """Start to sum an array; return a function that waits for it alone."""
        if self._comm.size == 1 or self.skip_exchange:
            return _nothing
        if self.before is not None:
            self.before()
        finish = partial(self._wait, self._comm.iallreduce(array))
        if self.overlap:
            return finish
        finish()
        return _nothing

    def total(self, array: AnyArray) -> AnyArray:
        """Sum an array, and return it."""
        self.later(array)()
        return array

    def test(self) -> None:
        """Make progress on sums; cheap if none is open."""
        if self._requests:
            with self._span("gradient: test"):
                if self._comm.test(self._requests):
                    self._requests.clear()

    def wait(self) -> None:
        """Return when all sums are complete."""
        if self._requests:
            with self._span("gradient: wait"):
                self._wait(self._requests)
                self._requests.clear()

    def _span(self, name: str) -> AbstractContextManager[None]:
        return _unmeasured if self._clock is None else self._clock.span(name, "gradient")
