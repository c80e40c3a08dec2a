"""The allreduce of gradients, overlapped with the rest of the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.arrays import AnyArray
from penstock.workers.gnn.halo.exchange import Exchanges


def _nothing() -> None:
    """Wait for a sum that is already complete."""


class GradientReducer(Exchanges):
    """Sums of contiguous arrays over all ranks, in place.

    reducer.start(gradient)     as soon as it is computed; it must not be touched then
    reducer.test()              between pieces of computation, so that it travels
    reducer.wait()              all started arrays are sums now
    reducer.total(moments)      the sum, now
    wait = reducer.later(loss)  the sum once wait() returns; other exchanges may stay open
    """

    kind = "gradient"

    def start(self, array: AnyArray) -> None:
        """Start to sum an array."""
        if not self._begins():
            return
        with self._span("post"):
            self._open[0].append(self._comm.iallreduce(array))
            self._comm.start()
        if not self.overlap:
            self.wait()

    def later(self, array: AnyArray) -> Callable[[], None]:
        """Start to sum an array; return a function that waits for it alone."""
        if not self._begins():
            return _nothing
        finish = partial(self._wait_for, self._comm.iallreduce(array))
        if self.overlap:
            return finish
        finish()
        return _nothing

    def total(self, array: AnyArray) -> AnyArray:
        """Sum an array, and return it."""
        self.later(array)()
        return array

    def wait(self) -> None:
        """Return when all sums are complete."""
        self._finish(self._open[0])
