"""Passes over a network on a GPU, launched as one: starting kernels one by one takes Python's time.

    passes = Recorded(network.around)
    sums = passes("train", epoch, work)     # what work() returned; the same object every time

``work`` runs twice as it is: it compiles, folds features and takes its memory. The third time its
launches are recorded in a CUDA graph, which is launched then and ever after. So it must not wait
for the GPU, nor copy from the host; the epoch, which dropped values depend on, is read from the
GPU's memory. What it allocates comes from memory of its own, which nothing else is given later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from typing import Any

from penstock.errors import PenstockError
from penstock.workers.gnn.layers.context import Surroundings

_BEFORE = 2  # times that a pass runs before it is recorded


class _Pass:
    def __init__(self) -> None:
        self.runs = 0
        self.graph: Any = None
        self.result: Any = None


class Recorded:
    """The passes of one rank; ``active=False`` runs them as they are, every time."""

    def __init__(self, around: Surroundings, *, active: bool) -> None:
        self.around, self.active = around, active
        self._passes: dict[str, _Pass] = {}
        self._pool: Any = None

    def __call__(self, name: str, epoch: int, work: Callable[[], Any], *, training: bool) -> Any:
        """Do a pass of an epoch, and return what it returned when it was recorded."""
        self.around.begin(epoch, training=training)
        if not self.active:
            return work()
        one = self._passes.setdefault(name, _Pass())
        one.runs += 1
        if one.runs < _BEFORE:
            return work()
        with self._own_memory() as stream:
            if one.runs == _BEFORE:
                return work()
            if one.graph is None:
                self._record(name, one, work, stream)
            one.graph.launch(stream)
        return one.result

    @contextmanager
    def _own_memory(self) -> Iterator[Any]:
        import cupy

        if self._pool is None:
            self._pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(self._pool.malloc):
            yield cupy.cuda.get_current_stream()

    @property
    def bytes(self) -> int:
        """How much memory recorded passes have for themselves."""
        return 0 if self._pool is None else int(self._pool.total_bytes())

    def _record(self, name: str, one: _Pass, work: Callable[[], Any], stream: Any) -> None:
        try:
            stream.begin_capture()
            try:
                one.result = work()
            finally:
                one.graph = stream.end_capture()
        except Exception as error:
            raise PenstockError(
                f"the {name} pass cannot be recorded on this GPU",
                got=f"{type(error).__name__}: {error}",
                remedy="Train with --no-cuda-graph, which launches kernels one by one",
            ) from error


@contextmanager
def own_stream(*, active: bool) -> Iterator[None]:
    """Launch on a stream that can be recorded, until the end of the block."""
    if not active:
        yield
        return
    import cupy

    with _stream(cupy.cuda.Device().id, get_ident()) as stream:
        yield
        stream.synchronize()


@cache
def _stream(device: int, thread: int) -> Any:
    # Kept, because memory pools and cuBLAS keep memory by stream. One a thread: nobody else may
    # launch on a stream that is recorded.
    import cupy

    return cupy.cuda.Stream(non_blocking=True)
