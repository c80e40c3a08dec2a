"""Steps as CUDA graphs: launching twenty kernels one by one takes longer than small batches do.

    with Workspace() as work:
        loss = work.run(key, prepare, stage, train)

A step that comes the second time, by its key, is captured, and launched as one graph ever after.
It reads its batch from the buffers of ``stage``. All graphs allocate from one memory pool, from
which nothing else does: as they run one after another, they may share what is only used within a
step.
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
_FIRST = -5  # the highest priority: blocks of a side stream start before those that wait already


class Workspace:
    """The captured steps of a training run.

    first  what another thread does on a stream of its own, before the first of them
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
        """Return what ``train`` returns, in an array of its own.

        prepare  allocates what ``stage`` writes and ``train`` reads
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
        # Captured arrays must not lie where running work still writes.
        cp.cuda.get_current_stream().synchronize()
        with cp.cuda.using_allocator(self._pool.malloc), stream:
            inputs = prepare()
            # What prepared it may have used memory that inputs have now, which ``stage`` writes on
            # another stream.
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
        # What fails here fails once more in the first step, which shows it.
        with self._device, cp.cuda.Stream(non_blocking=True) as stream, suppress(Exception):
            self._work()
            stream.synchronize()


class Branch(Protocol):
    """Work on another stream."""

    def wait(self) -> None:
        """Let the current stream wait for it."""


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
    """Launch while the current stream continues its own work; to be waited for before the end.

    What is allocated in the block is of the other stream's memory: it is not given to the current
    stream's work when it is freed.
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
    # on a stream that is captured.
    return cp.cuda.Stream(non_blocking=True, priority=_FIRST if use == "side" else 0)
