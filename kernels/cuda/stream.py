"""Walking and copying at once: a batch is copied to the host while the next ones walk.

Batches walk on one stream and are copied on another, through page-locked memory, which makes copies
fast and concurrent. Only events are waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels.cuda.walk import walk
from penstock.kernels.cuda.walk.arguments import resident_walks
from penstock.kernels.cuda.walk.tables import pack
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

_BUFFERS = 3  # one is filled while the last two that were handed out may still be read
_WORTH_A_COPY = 16 << 20  # bytes; starting a batch takes about a hundred microseconds


def batches(
    rows: WalkGraph,
    rules: WalkRules,
    walks: AnyArray,
    starts: AnyArray,
    size: int | None = None,
) -> Iterator[tuple[int, Array]]:
    """Yield each batch's first place among the walks and its paths on the host, in order.

    An array is valid until the next but one is requested. size: walks of a batch [default: the
    GPU's resident walks, or more if paths are short].
    """
    size = size or _batch(rows, rules)
    shape = min(size, len(walks)), rules.length
    buffers = [page_locked(shape, rows.indices.dtype) for _ in range(_BUFFERS)]

    def buffer(number: int, first: int, count: int) -> Array:
        return buffers[number % _BUFFERS][:count]

    # Two batches run while the caller holds a third.
    yield from _in_order(_started(rows, rules, walks, starts, size, buffer), ahead=2)


def walk_to_host(
    rows: WalkGraph,
    rules: WalkRules,
    walks: AnyArray,
    starts: AnyArray,
    out: Array,
    size: int | None = None,
) -> None:
    """Write the paths of all walks to ``out``: (walks, length), like ``indices``, page-locked."""
    assert out.shape == (len(walks), rules.length)
    assert out.dtype == rows.indices.dtype
    assert out.flags.c_contiguous

    def place(number: int, first: int, count: int) -> Array:
        return out[first : first + count]

    started = _started(rows, rules, walks, starts, size or _batch(rows, rules), place)
    for _ in _in_order(started, ahead=3):
        pass


def page_locked(shape: tuple[int, int], dtype: Any) -> Any:
    """Return an array in page-locked host memory, for fast copies to and from the GPU."""
    count = max(shape[0] * shape[1], 1)
    memory = cp.cuda.alloc_pinned_memory(count * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, count)[: shape[0] * shape[1]].reshape(shape)


def _batch(rows: WalkGraph, rules: WalkRules) -> int:
    least = -(-_WORTH_A_COPY // (rules.length * rows.indices.dtype.itemsize))
    return max(resident_walks(rows, rules), int(least))


Started = tuple[int, Any, Any, Any]  # first walk, array on the host, array on the GPU, event


def _started(
    rows: WalkGraph,
    rules: WalkRules,
    walks: Any,
    starts: Any,
    size: int,
    place: Callable[[int, int, int], Any],
) -> Iterator[Started]:
    """Start each batch and its copy; the GPU's array must live until the event completes."""
    walking, copying = _streams(cp.cuda.Device().id)
    if rules.sampler != Sampler.RESERVOIR:
        rows = pack(rows, rules)
    walks = cp.asarray(walks, cp.int64)
    starts = cp.asarray(starts, rows.indices.dtype)
    walking.wait_event(cp.cuda.get_current_stream().record())
    for number, first in enumerate(range(0, len(walks), size)):
        some = slice(first, first + size)
        with walking:
            paths = walk(rows, rules, walks[some], starts[some])
        copying.wait_event(walking.record())
        host = place(number, first, len(paths))
        paths.data.copy_to_host_async(host.ctypes.data, paths.nbytes, copying)
        yield first, host, paths, copying.record()


def _in_order(started: Iterator[Started], ahead: int) -> Iterator[tuple[int, Array]]:
    under_way: deque[Started] = deque()
    try:
        for batch in started:
            under_way.append(batch)
            if len(under_way) >= ahead:
                yield _copied(under_way.popleft())
        while under_way:
            yield _copied(under_way.popleft())
    finally:  # do not free a buffer during its copy, even if the caller stops early
        while under_way:
            _copied(under_way.popleft())


def _copied(batch: Started) -> tuple[int, Any]:
    first, host, _, copied = batch
    copied.synchronize()
    return first, host


@cache
def _streams(device: int) -> tuple[Any, Any]:
    # Kept, because CuPy's memory pool keeps memory by stream.
    return cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
