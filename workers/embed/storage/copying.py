"""Moving data between a thread's buffer and a slot: directly, by a copy, or by a GPU's copy."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.workers.embed.storage import PAGE


class Copying(Protocol):
    """The operations that a table needs on the memory of its slots."""

    def enter_thread(self) -> None:
        """Prepare a thread that will copy."""

    def ready(self) -> Callable[[], None]:
        """Return a function that waits until all work before this call is done in the slot."""

    def is_direct(self, memory: Any) -> bool:
        """Whether the disk can be read directly into ``memory``."""

    def new_buffer(self, size: int) -> Array:
        """Return host memory that begins at a page, fit for copies: (size,) uint8."""

    def to_host(self, memory: Any, host: Array) -> None:
        """Copy ``memory`` to ``host``, and wait for the copy."""

    def from_host(self, host: Array, memory: Any) -> None:
        """Copy ``host`` to ``memory``, and wait for the copy."""


class HostCopying:
    """Slots in host memory."""

    def enter_thread(self) -> None:
        """Do nothing."""

    def ready(self) -> Callable[[], None]:
        """Return a function that returns at once: nothing is pending."""
        return lambda: None

    def is_direct(self, memory: Array) -> bool:
        """Whether it begins at a page."""
        return bool(memory.ctypes.data % PAGE == 0)

    def new_buffer(self, size: int) -> Array:
        """Return mapped memory."""
        return np.frombuffer(mmap.mmap(-1, size), np.uint8, size)

    def to_host(self, memory: Array, host: Array) -> None:
        """Copy."""
        host[:] = memory

    def from_host(self, host: Array, memory: Array) -> None:
        """Copy."""
        memory[:] = host


class DeviceCopying:
    """Slots in the memory of the GPU that is current when this object is made."""

    def __init__(self) -> None:
        import threading

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

    def is_direct(self, memory: DeviceArray) -> bool:
        """Return False: data goes through a pinned buffer."""
        return False

    def new_buffer(self, size: int) -> Array:
        """Return pinned memory."""
        import cupy

        pinned = cupy.cuda.alloc_pinned_memory(size + PAGE)
        start = -pinned.ptr % PAGE
        return np.frombuffer(pinned, np.uint8, size + PAGE)[start : start + size]

    def to_host(self, memory: DeviceArray, host: Array) -> None:
        """Copy on this thread's stream."""
        memory.get(stream=self._local.stream, out=host)
        self._local.stream.synchronize()

    def from_host(self, host: Array, memory: DeviceArray) -> None:
        """Copy on this thread's stream."""
        memory.set(host, stream=self._local.stream)
        self._local.stream.synchronize()
