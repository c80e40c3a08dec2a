"""Passes over a network on a GPU as CUDA graphs, which save Python's time per launch.

    passes = CudaGraphs(network.context, active=True)
    sums = passes("train", epoch, work, training=True)     # always the same object

``work`` is warmed up twice: it compiles, precomputes and allocates. The third call captures it in a
CUDA graph, which is launched then and in all later calls. So it must not wait for the GPU or copy
from the host; the epoch, which decides dropout, is read from the GPU's memory. It allocates from
its own memory pool, which later allocations do not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any, TypeVar

from penstock.errors import PenstockError
from penstock.workers.gnn.layers.context import Context

_WARM_UPS = 2
T = TypeVar("T")


class _Pass:
    def __init__(self) -> None:
        self.runs = 0
        self.graph: Any = None
        self.result: Any = None


class CudaGraphs:
    """The passes of one rank; ``active=False`` always runs them without a graph."""

    def __init__(self, context: Context, *, active: bool) -> None:
        self.context, self.active = context, active
        self._passes: dict[str, _Pass] = {}
        self._pool: Any = None

    def __call__(self, name: str, epoch: int, work: Callable[[], T], *, training: bool) -> T:
        """Do a pass of an epoch, and return its result at the capture."""
        self.context.begin(epoch, training=training)
        if not self.active:
            return work()
        one = self._passes.setdefault(name, _Pass())
        one.runs += 1
        if one.runs < _WARM_UPS:
            return work()
        with self._own_memory() as stream:
            if one.runs == _WARM_UPS:
                return work()
            if one.graph is None:
                self._capture(name, one, work, stream)
            one.graph.launch(stream)
        result: T = one.result
        return result

    @contextmanager
    def _own_memory(self) -> Iterator[Any]:
        import cupy

        if self._pool is None:
            self._pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(self._pool.malloc):
            yield cupy.cuda.get_current_stream()

    @property
    def bytes(self) -> int:
        """The memory pool of captured passes."""
        return 0 if self._pool is None else int(self._pool.total_bytes())

    def _capture(self, name: str, one: _Pass, work: Callable[[], object], stream: Any) -> None:
        try:
            stream.begin_capture()
            try:
                one.result = work()
            finally:
                one.graph = stream.end_capture()
        except Exception as error:
            raise PenstockError(
                f"the {name} pass cannot be captured in a CUDA graph on this GPU",
                got=f"{type(error).__name__}: {error}",
                remedy="Train with --no-cuda-graph, which launches kernels one by one",
            ) from error


@contextmanager
def own_stream(*, active: bool) -> Iterator[None]:
    """Launch on a stream that can be captured, until the end of the block."""
    if not active:
        yield
        return
    import cupy

    with _stream(cupy.cuda.Device().id, get_ident()) as stream:
        yield
        stream.synchronize()


@cache
def _stream(device: int, thread: int) -> Any:
    # Kept, because memory pools and cuBLAS keep memory by stream. One per thread: no other thread
    # may launch on a stream during its capture.
    import cupy

    return cupy.cuda.Stream(non_blocking=True)
