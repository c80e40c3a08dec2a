"""Batches that kernels train: their losses, and the time that they take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Batches:
    """Batches, some of which a GPU still trains.

        with batches.batch() as losses:
            losses.append(kernels.step(...))
        total += sum(batches.settle(keep))

    On a host, its clock measures them. A GPU still computes after the host has launched kernels, so
    events on the stream measure them. Time between two kernels of a batch counts, time between two
    batches does not.

    device   whether kernels are launched on the current GPU
    seconds  of all settled batches
    exposed  from the end of a batch to the beginning of the next if ``swap`` was called between
             them: the GPU waited for the swap
    """

    def __init__(self, *, device: bool) -> None:
        self.seconds = self.exposed = 0.0
        self._device = device
        self._losses: list[Any] = []
        self._launched: list[tuple[Any, Any, bool]] = []
        self._free: list[Any] = []
        self._last: Any = None  # the end of the last settled batch
        self._after_swap = False
        self._stream: Any = None

    @contextmanager
    def batch(self) -> Iterator[list[Any]]:
        """Count the time of this block, which appends the losses of the batch's steps."""
        losses: list[Any] = []
        if not self._device:
            begun = time.perf_counter()
            yield losses
            self.seconds += time.perf_counter() - begun
            self._losses.append(sum(losses[1:], losses[0]))
            return
        begun, ended = self._event(), self._event()
        after_swap, self._after_swap = self._after_swap, False
        begun.record()
        yield losses
        # Before the end: ``settle`` reads the sum once the end has come.
        self._losses.append(sum(losses[1:], losses[0]))
        ended.record()
        self._launched.append((begun, ended, after_swap))

    def swap(self) -> None:
        """Record that the next batch may wait for a swap."""
        self._after_swap = True

    def pause(self) -> None:
        """Record that all is settled: time before the next batch does not count as waiting."""
        self._last = None

    def settle(self, keep: int = 0) -> list[float]:
        """Wait for all launched batches except the last ``keep``; return their losses, in order.

        A separate stream copies losses: a copy on the training stream would also wait for the
        batches after them.
        """
        done = max(0, len(self._losses) - keep)
        losses, launched = self._losses[:done], self._launched[:done]
        del self._losses[:done], self._launched[:done]
        if not launched:
            return [float(loss) for loss in losses]
        import cupy

        def elapsed(begun: Any, ended: Any) -> float:
            return 1e-3 * float(cupy.cuda.get_elapsed_time(begun, ended))

        for begun, ended, after_swap in launched:
            ended.synchronize()
            self.seconds += elapsed(begun, ended)
            if self._last is not None:
                if after_swap:
                    self.exposed += elapsed(self._last, begun)
                self._free.append(self._last)
            self._free.append(begun)
            self._last = ended
        self._stream = self._stream or cupy.cuda.Stream(non_blocking=True)
        return [float(loss.get(stream=self._stream)) for loss in losses]

    def _event(self) -> Any:
        if self._free:
            return self._free.pop()
        import cupy

        return cupy.cuda.Event()
