"""Time in which kernels train."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class BusyTime:
    """Seconds in which kernels trained batches.

        with busy.batch():
            loss = kernels.step(...)
        busy.settle()

    On a host, its clock measures them. A GPU still computes after the host has launched kernels, so
    events on the stream measure them. Time between two kernels of a batch counts, time between two
    batches does not.

    device   whether kernels are launched on the current GPU
    seconds  of all settled batches
    exposed  from the end of a batch to the beginning of the next if ``swap`` was called between
             them: the GPU waited for the swap
    """

    def __init__(self, *, device: bool = False) -> None:
        self.seconds = self.exposed = 0.0
        self._device = device
        self._launched: list[tuple[Any, Any, bool]] = []
        self._free: list[Any] = []
        self._last: Any = None  # the end of the last settled batch
        self._after_swap = False

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Count the time of this block."""
        if not self._device:
            begun = time.perf_counter()
            yield
            self.seconds += time.perf_counter() - begun
            return
        begun, ended = self._event(), self._event()
        after_swap, self._after_swap = self._after_swap, False
        begun.record()
        yield
        ended.record()
        self._launched.append((begun, ended, after_swap))

    def swap(self) -> None:
        """Record that the next batch may wait for a swap."""
        self._after_swap = True

    def pause(self) -> None:
        """Record that all is settled: time before the next batch does not count as waiting."""
        self._last = None

    def settle(self, keep: int = 0) -> None:
        """Wait for all launched batches except the last ``keep``, and count them."""
        done = len(self._launched) - keep
        if done <= 0:
            return
        import cupy

        def elapsed(begun: Any, ended: Any) -> float:
            return 1e-3 * float(cupy.cuda.get_elapsed_time(begun, ended))

        for begun, ended, after_swap in self._launched[:done]:
            ended.synchronize()
            self.seconds += elapsed(begun, ended)
            if self._last is not None:
                if after_swap:
                    self.exposed += elapsed(self._last, begun)
                self._free.append(self._last)
            self._free.append(begun)
            self._last = ended
        del self._launched[:done]

    def _event(self) -> Any:
        if self._free:
            return self._free.pop()
        import cupy

        return cupy.cuda.Event()
