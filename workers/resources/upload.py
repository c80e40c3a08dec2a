"""From mapped files to a GPU: several threads read pieces into pinned memory.

A direct copy from a mapping waits for every page of it, in one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.limits import cores
from penstock.threads import spread

_PIECE = 1 << 23  # bytes
_THREADS = 8  # these nearly saturate a machine's memory


def upload(pairs: Iterable[tuple[Array, DeviceArray]]) -> None:
    """Copy each array to its GPU array of the same length; types may differ."""
    import cupy

    device, of_thread = cupy.cuda.Device(), threading.local()
    # A kernel may still read the memory's former content.
    cupy.cuda.get_current_stream().synchronize()

    def copy(piece: tuple[Array, DeviceArray]) -> None:
        host, into = piece
        device.use()
        if not hasattr(of_thread, "stream"):
            of_thread.stream = cupy.cuda.Stream(non_blocking=True)
            pinned: Any = cupy.cuda.alloc_pinned_memory(_PIECE)
            of_thread.buffer = np.frombuffer(pinned, np.uint8, _PIECE)
        read = of_thread.buffer[: into.nbytes].view(into.dtype)
        read[...] = host
        into.set(read, stream=of_thread.stream)
        of_thread.stream.synchronize()

    spread(copy, pieces(pairs), min(cores(), _THREADS))


def pieces(
    pairs: Iterable[tuple[Array, DeviceArray]], most: int = _PIECE
) -> Iterator[tuple[Array, DeviceArray]]:
    """Cut pairs of arrays of one axis into pieces of at most this many bytes."""
    for host, into in pairs:
        assert len(host) == len(into)
        step = most // into.itemsize
        for first in range(0, len(host), step):
            yield host[first : first + step], into[first : first + step]
