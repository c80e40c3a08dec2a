"""Copies between slots in a GPU's memory and pinned buffers, one per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.workers.embed.storage import CHUNK, PAGE


class DeviceCopying:
    """Slots in the memory of the GPU that is current when this object is made."""

    def __init__(self) -> None:
        import cupy

        self._device = cupy.cuda.Device()
        self._local = threading.local()

    def enter_thread(self) -> None:
        """Select the GPU, and a stream for this thread."""
        import cupy

        self._device.use()
        self._local.stream = cupy.cuda.Stream(non_blocking=True)
        self._local.stream.use()  # for kernels, too: they do not wait for training's

    def ready(self) -> Callable[[], None]:
        """Return a function that waits for the kernels that are on the caller's stream now."""
        import cupy

        # Threads sleep meanwhile: spinning would take cores from the thread that launches kernels.
        event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        wait: Callable[[], None] = event.synchronize
        return wait

    def buffer(self, size: int) -> Array:
        """Return this thread's pinned buffer, which begins at a page: (size,) uint8."""
        if not hasattr(self._local, "buffer"):
            import cupy

            pinned = cupy.cuda.alloc_pinned_memory(CHUNK + PAGE)
            self._local.buffer = np.frombuffer(pinned, np.uint8, CHUNK + PAGE)[-pinned.ptr % PAGE :]
        found: Array = self._local.buffer[:size]
        return found

    def to_host(self, memory: Any) -> Array:
        """Copy ``memory`` to this thread's buffer, and wait for the copy."""
        host = self.buffer(len(memory))
        memory.get(stream=self._local.stream, out=host)
        self._local.stream.synchronize()
        return host

    def from_host(self, host: Array, memory: Any) -> None:
        """Copy ``host`` to ``memory``, and wait for the copy."""
        memory.set(host, stream=self._local.stream)
        self._local.stream.synchronize()
