"""How a thread's buffer and a slot's memory meet: directly, by a copy, or by one from a GPU."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.workers.embed.storage import PAGE


class Copying(Protocol):
    """What a table needs of the memory that its slots are in."""

    def enter_thread(self) -> None:
        """Make ready a thread that will copy."""

    def ready(self) -> Callable[[], None]:
        """Return what waits until the slot holds what was computed before this call."""

    def is_direct(self, memory: Any) -> bool:
        """Whether the disk can be read into ``memory`` itself."""

    def new_buffer(self, size: int) -> Array:
        """Return host memory that begins at a page, fit for copies: (size,) uint8."""

    def to_host(self, memory: Any, host: Array) -> None:
        """Copy ``memory`` to ``host``, and return when it is copied."""

    def from_host(self, host: Array, memory: Any) -> None:
        """Copy ``host`` to ``memory``, and return when it is copied."""


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
    """Slots in the memory of the GPU that is current where this is made."""

    def __init__(self) -> None:
        import threading

        import cupy

        self._device = cupy.cuda.Device()
        self._local = threading.local()

    def enter_thread(self) -> None:
        """Use the GPU, with a stream of this thread's own."""
        import cupy

        self._device.use()
        self._local.stream = cupy.cuda.Stream(non_blocking=True)
        self._local.stream.use()  # that of kernels too: none waits for the training's

    def ready(self) -> Callable[[], None]:
        """Return what waits for the kernels that are on the caller's stream now."""
        import cupy

        # Threads sleep until then: they would take cores from the one that launches kernels.
        event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(cupy.cuda.get_current_stream())
        wait: Callable[[], None] = event.synchronize
        return wait

    def is_direct(self, memory: DeviceArray) -> bool:
        """Return False: it goes by way of a pinned buffer."""
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
