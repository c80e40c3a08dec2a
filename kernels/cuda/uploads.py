"""Copies of arrays to the GPU, through reused pinned memory."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray

_LEAST = 1 << 12  # bytes
_PIECE = 1 << 25  # bytes that are copied at a time
_FEW = 1 << 20  # bytes: smaller arrays are padded instead of waiting for the GPU


def to_gpu(array: Array) -> DeviceArray:
    """Return a copy of ``array`` for later launches on the current stream.

    CuPy's ``asarray`` pins memory of the array's size, and keeps it only for arrays of that exact
    size. With varying sizes, each copy would pin new memory, which takes milliseconds in which no
    other thread launches, copies or maps memory. Here sizes are rounded.
    """
    array = np.ascontiguousarray(array)
    size = array.nbytes
    if size == 0:
        return cp.empty(array.shape, array.dtype)
    if size <= _FEW:
        padded = np.empty(_rounded(size), np.uint8)
        padded[:size] = array.reshape(-1).view(np.uint8)
        found: Any = cp.asarray(padded)[:size].view(array.dtype).reshape(array.shape)
        return found
    pinned = cp.cuda.alloc_pinned_memory(_rounded(size))
    host = np.frombuffer(pinned, array.dtype, array.size).reshape(array.shape)
    np.copyto(host, array)
    found = cp.empty(array.shape, array.dtype)
    stream = cp.cuda.get_current_stream()
    found.set(host, stream=stream)
    stream.synchronize()  # then CuPy may reuse the memory
    return found


def upload(array: Array, there: DeviceArray, stream: cp.cuda.Stream) -> None:
    """Fill ``there`` with an array of any size, such as a mapped one; return once it is complete.

    It is copied in pieces through two pinned buffers: one is filled while the other is sent.
    Copies from other memory go through the driver's buffer, half as fast.
    """
    size = array.nbytes
    if size == 0:
        return
    host = array.reshape(-1).view(np.uint8)
    device = there.reshape(-1).view(cp.uint8)
    buffers = [
        cp.cuda.alloc_pinned_memory(min(_rounded(size), _PIECE)) for _ in range(1 + (size > _PIECE))
    ]
    sent = [cp.cuda.Event(block=True, disable_timing=True) for _ in buffers]
    for number, start in enumerate(range(0, size, _PIECE)):
        some = host[start : start + _PIECE]
        pinned, event = buffers[number % len(buffers)], sent[number % len(buffers)]
        event.synchronize()
        np.copyto(np.frombuffer(pinned, np.uint8, len(some)), some)
        part = device[start : start + _PIECE]
        part.data.copy_from_host_async(pinned.ptr, len(some), stream)
        event.record(stream)
    stream.synchronize()


def _rounded(size: int) -> int:
    return 1 << (max(size, _LEAST) - 1).bit_length()
