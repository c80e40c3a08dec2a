"""Steps as CUDA graphs: launching twenty kernels takes longer than a small batch.

    with Workspace() as work:
        loss = work.run(key, prepare, stage, train)

A step whose key is repeated is captured, and from then on launched as one graph. It reads its batch
from the buffers of ``stage``. All graphs allocate from one memory pool, which has no other users:
as they run one after another, they may share memory that is only used within a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol, Self

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.errors import PenstockError

_MOST_GRAPHS = 64  # one per batch size
_FIRST = -5  # the highest priority: blocks of a side stream start before waiting ones


class Workspace:
    """The captured steps of a training run.

    first  work for another thread and stream, before the first of them
    """

    def __init__(self, first: Callable[[], None] | None = None) -> None:
        self._first = None if first is None else _OtherThread(first)
        self._runs: dict[Hashable, int] = {}
        self._graphs: dict[Hashable, tuple[Any, Any, DeviceArray]] = {}
        self._pool: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._first is not None:
            self._first.join()
        if self._graphs:
            cp.cuda.get_current_stream().synchronize()
        self._graphs.clear()
        self._runs.clear()
        self._pool = None

    @property
    def bytes(self) -> int:
        """The memory pool of captured steps."""
        return 0 if self._pool is None else int(self._pool.total_bytes())

    def run(
        self,
        key: Hashable,
        prepare: Callable[[], Any],
        stage: Callable[[Any], None],
        train: Callable[[Any], DeviceArray],
    ) -> DeviceArray:
        """Return the result of ``train``, in a separate array.

        prepare  allocates the memory that ``stage`` writes and ``train`` reads
        """
        if self._first is not None:
            self._first.join()
            self._first = None
        if key not in self._graphs:
            self._runs[key] = self._runs.get(key, 0) + 1
            if self._runs[key] == 1 or len(self._graphs) >= _MOST_GRAPHS:
                inputs = prepare()
                stage(inputs)
                return train(inputs)
            self._graphs[key] = self._capture(prepare, train)
        graph, inputs, result = self._graphs[key]
        stage(inputs)
        graph.launch()
        return result.copy()

    def _capture(
        self, prepare: Callable[[], Any], train: Callable[[Any], DeviceArray]
    ) -> tuple[Any, Any, DeviceArray]:
        if self._pool is None:
            self._pool = cp.cuda.MemoryPool()
        stream = _stream(cp.cuda.Device().id, threading.get_ident(), "capture")
        # Captured arrays must not use memory that running work still writes.
        cp.cuda.get_current_stream().synchronize()
        with cp.cuda.using_allocator(self._pool.malloc), stream:
            inputs = prepare()
            # The preparation may have used memory that now holds inputs, which ``stage`` writes
            # on another stream.
            stream.synchronize()
            try:
                stream.begin_capture()
                try:
                    result = train(inputs)
                finally:
                    graph = stream.end_capture()
            except Exception as error:
                raise PenstockError(
                    "a step of training cannot be captured in a CUDA graph on this GPU",
                    got=f"{type(error).__name__}: {error}",
                    remedy="report this; meanwhile train on CPUs",
                ) from error
        return graph, inputs, result


class _OtherThread(threading.Thread):
    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="penstock-compile", daemon=True)
        self._work, self._device = work, cp.cuda.Device()
        self.start()

    def run(self) -> None:
        # An error here is raised again in the first step.
        with self._device, cp.cuda.Stream(non_blocking=True) as stream, suppress(Exception):
            self._work()
            stream.synchronize()


class Branch(Protocol):
    """Work on another stream."""

    def wait(self) -> None:
        """Make the current stream wait for it."""


class _Branch:
    def __init__(self, stream: Any) -> None:
        self._done = cp.cuda.Event(disable_timing=True)
        self._stream = stream

    def end(self) -> None:
        self._done.record(self._stream)

    def wait(self) -> None:
        cp.cuda.get_current_stream().wait_event(self._done)


@contextmanager
def side_stream() -> Iterator[Branch]:
    """Launch on another stream while the current one continues; wait for it before the end.

    Memory allocated in the block belongs to the other stream: freed, it is not reused by the
    current stream's work.
    """
    begun = cp.cuda.Event(disable_timing=True)
    begun.record(cp.cuda.get_current_stream())
    stream = _stream(cp.cuda.Device().id, threading.get_ident(), "side")
    stream.wait_event(begun)
    branch = _Branch(stream)
    with stream:
        yield branch
    branch.end()


@cache
def _stream(device: int, thread: int, use: str) -> Any:
    # Kept, because memory pools keep memory by stream. One per thread: no other thread may launch
    # on a stream during its capture.
    return cp.cuda.Stream(non_blocking=True, priority=_FIRST if use == "side" else 0)
