"""For how long kernels train."""

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

    On a host they are those of its clock. A GPU goes on when the host has launched its kernels, so
    that the host's clock cannot time them: events on the stream do. The time between two kernels of
    a batch counts, that between two batches does not.

    device   whether kernels are launched on the current GPU
    seconds  of all batches that are settled
    """

    def __init__(self, *, device: bool = False) -> None:
        self.seconds = 0.0
        self._device = device
        self._launched: list[tuple[Any, Any]] = []
        self._free: list[tuple[Any, Any]] = []

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Count what is done in this block."""
        if not self._device:
            begun = time.perf_counter()
            yield
            self.seconds += time.perf_counter() - begun
            return
        pair = self._free.pop() if self._free else _events()
        pair[0].record()
        yield
        pair[1].record()
        self._launched.append(pair)

    def settle(self) -> None:
        """Wait for the batches that were launched, and count them."""
        if not self._launched:
            return
        import cupy

        for begun, ended in self._launched:
            ended.synchronize()
            self.seconds += 1e-3 * float(cupy.cuda.get_elapsed_time(begun, ended))
        self._free += self._launched
        self._launched.clear()


def _events() -> tuple[Any, Any]:
    import cupy

    return cupy.cuda.Event(), cupy.cuda.Event()
