"""GPUs of several ranks in NumPy, whose streams run late and in any order that CUDA allows.

    gpus = Gpus(ranks=2, seed=1, how="late")
    gpus.run(function)              function(comm) on a thread for each rank

Launched work is only recorded. It runs when a caller waits for it (``late``), at once (``eager``),
or at random (``any``), and of the streams of all ranks a random one continues. A reduction
needs all ranks to have come to it. Memory that the host gives back is given out again at once, as
by CuPy's pool, and spoiled when its own stream comes to that: what another stream still reads, or
what it writes later, shows in the result. Ranks that do not call the same things end with an error.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.kernels.cpu import word2vec as cpu
from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import Losses, Sentences
from penstock.workers.comm import nccl
from penstock.workers.comm.communicator import Communicator
from penstock.workers.comm.exchange_nccl import NcclExchange

_NOT_READY = 600
_MEMORY = 1 << 30  # bytes of each
_PATIENCE = 20.0  # seconds, before what never comes is an error
_here = threading.local()


class Stream:
    """Launched work that has not run: in order, each with its dependencies."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus, self.launched = gpus, deque[tuple[Callable[[], None], Callable[[], bool]]]()
        self.ptr = id(self)
        gpus.streams[self.ptr] = self

    def put(self, run: Callable[[], None], ready: Callable[[], bool] = lambda: True) -> None:
        """Launch something."""
        with self.gpus.lock:
            self.launched.append((run, ready))
        self.gpus.after_launch()

    def wait_event(self, event: Event) -> None:
        """Let the next launch wait for the current position of an event."""
        point = event.point
        self.put(lambda: None, lambda: bool(point))

    def synchronize(self) -> None:
        """Wait for all of it."""
        end = Event()
        end.record(self)
        end.synchronize()


class Event:
    """A place in a stream."""

    def __init__(self, disable_timing: bool = False) -> None:
        self.point: list[bool] = []
        self.ptr = self

    def record(self, stream: Stream | None = None) -> None:
        """Take the stream's current position."""
        self.point = point = list[bool]()
        (stream or _here.gpu.stream).put(lambda: point.append(True))

    def synchronize(self) -> None:
        """Wait until the stream reaches it."""
        _here.gpu.gpus.until(lambda: bool(self.point))


class Block:
    """Memory that goes back to the pool with the last array that lies in it."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.gpu, pool = gpu, gpu.pool[size]
        self.bytes = pool.pop() if pool else np.full(size, 0xFF, np.uint8)
        gpu.held.append(self.bytes)
        gpu.used += size

    def __del__(self) -> None:
        found = self.bytes
        self.gpu.used -= found.size
        self.gpu.pool[found.size].append(found)
        self.gpu.stream.launched.append((partial(found.fill, 0xFF), lambda: True))


class DeviceArray:
    """What is used of a CuPy array. ``values`` is what kernels see, which run later."""

    __cuda_array_interface__: Any = None

    def __init__(self, block: Block, values: Any) -> None:
        self.block, self.values = block, values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.size, self.nbytes, self.flags = values.size, values.nbytes, values.flags
        self.data = SimpleNamespace(ptr=values.ctypes.data)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> DeviceArray:
        return DeviceArray(self.block, self.values[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        source = value.values if isinstance(value, DeviceArray) else np.array(value)
        key = key.values if isinstance(key, DeviceArray) else key
        self.block.gpu.stream.put(partial(self.values.__setitem__, key, source))

    def copy(self) -> DeviceArray:
        """Launch a copy."""
        made = empty(self.shape, self.dtype)
        made[...] = self
        return made

    def get(self, out: Any = None) -> Any:
        """Wait, and return it in host memory."""
        self.block.gpu.stream.synchronize()
        if out is None:
            return self.values.copy()
        out[...] = self.values
        return out

    def min(self) -> Any:
        """Wait, and return the least."""
        return self.get().min()

    def max(self) -> Any:
        """Wait, and return the largest."""
        return self.get().max()


class Gpu:
    """That of one rank: memory, and the stream on which it computes.

    used  bytes of current arrays
    """

    def __init__(self, gpus: Gpus) -> None:
        self.used = 0
        self.gpus, self.stream = gpus, Stream(gpus)
        self.pool: dict[int, list[Any]] = defaultdict(list)
        self.held: list[Any] = []  # for good: an address stays one of ours


class Gpus:
    """All of them, and the messages between ranks."""

    def __init__(self, ranks: int, seed: int, how: str) -> None:
        self.size, self.how, self.random = ranks, how, random.Random(seed)
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.streams: dict[int, Stream] = {}
        self.gpus = [Gpu(self) for _ in range(ranks)]
        self.failed: list[BaseException] = []
        self._calls = [0] * ranks
        self._met: dict[int, dict[int, tuple[str, Any]]] = defaultdict(dict)
        self._reduced = [0] * ranks
        # What each has of a sum, and whether it is done.
        self._reductions: dict[int, tuple[dict[int, Any], list[bool]]] = defaultdict(
            lambda: ({}, [])
        )

    def run(self, function: Callable[[Ranks], Any]) -> list[Any]:
        """Return what each rank returns; raise what the first that fails raises."""
        found: list[Any] = [None] * self.size

        def begin(rank: int) -> None:
            _here.gpu = self.gpus[rank]
            try:
                found[rank] = function(Ranks(self, rank))
            except BaseException as error:
                with self.changed:
                    self.failed.append(error)
                    self.changed.notify_all()

        threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]
        assert not any(self._calls[0] - calls for calls in self._calls)
        return found

    # -- what runs ---------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run what one stream has next; return whether any could."""
        with self.lock:
            ready = [s for s in self.streams.values() if s.launched and s.launched[0][1]()]
            if not ready:
                return False
            run, _ = self.random.choice(ready).launched.popleft()
            run()
            return True

    def after_launch(self) -> None:
        """Run nothing, all, or something."""
        with self.lock:
            few = self.random.choice((0, 0, 1, 10)) if self.how == "any" else 0
        while self.how == "eager" or few > 0:
            few -= 1
            if not self.step():
                return

    def until(self, done: Callable[[], bool]) -> None:
        """Run what there is until that is so."""
        end = time.monotonic() + _PATIENCE
        while not done():
            if self.failed:
                raise RuntimeError("another rank failed")
            if time.monotonic() > end:
                raise TimeoutError("what the host waits for never comes")
            if not self.step():
                time.sleep(1e-4)

    # -- what ranks say ----------------------------------------------------------------------------

    def meet(self, rank: int, kind: str, value: Any = None) -> list[Any]:
        """Return every rank's value of this call."""
        with self.changed:
            number = self._calls[rank]
            self._calls[rank] += 1
            met = self._met[number]
            met[rank] = kind, pickle.dumps(value)
            assert {one for one, _ in met.values()} == {kind}, (number, met)
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: len(met) == self.size or self.failed, _PATIENCE):
                raise TimeoutError(f"only ranks {sorted(met)} called {kind}")
            if len(met) < self.size:
                raise RuntimeError("another rank failed")
            return [pickle.loads(met[one][1]) for one in range(self.size)]

    def reduce(self, rank: int, values: Any, stream: Stream) -> None:
        """Launch a sum in place, over all ranks."""
        number = self._reduced[rank]
        self._reduced[rank] += 1
        come, done = self._reductions[number]

        def ready() -> bool:
            come[rank] = values
            assert len({one.size for one in come.values()}) == 1, (number, come)
            return len(come) == self.size

        def run() -> None:
            if not done:
                done.append(True)
                total = sum((come[one] for one in range(1, self.size)), come[0].copy())
                for one in come.values():
                    one[...] = total

        stream.put(run, ready)


class Waiter:
    """Of a rank: it is never cancelled."""

    cancelled = False

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus

    def wait(self, requests: Any, timeout: float) -> None:
        """Return: the caller has met the others."""

    def wait_until(self, done: Callable[[], bool], timeout: float, *, spin: float = 0) -> None:
        """Run what there is until that is so."""
        self._gpus.until(done)


class Ranks(Communicator):
    """A rank's communicator: that of gangs on GPUs, without MPI.

    ahead  how many marks the host had made beyond each that it reached
    """

    def __init__(self, gpus: Gpus, rank: int) -> None:
        self.rank, self.size, self.wait_timeout = rank, gpus.size, _PATIENCE
        self.gpus, self.waiter = gpus, Waiter(gpus)  # type: ignore[assignment]
        self._sends, self._receives, self._persistent, self._report = [], [], [], None
        self._agreements = []
        self.mpi = SimpleNamespace(Ialltoall=self._exchange_texts)  # type: ignore[assignment]
        self._host, self._request = None, ()  # type: ignore[assignment]
        link = nccl.Link(SimpleNamespace(allReduce=self._reduce_all, check_async_error=int), "")
        self._device = NcclExchange(SimpleNamespace(rank=rank), self.waiter, "", link, _PATIENCE)
        self.ahead: list[int] = []
        self._marks = 0

    def broadcast(self, array: Any, root: int = 0) -> Any:
        """Copy an array of the host."""
        array[...] = self.gpus.meet(self.rank, "broadcast", array)[root]
        return array

    def _exchange_texts(self, says: Any, came: Any) -> None:
        every = self.gpus.meet(self.rank, "alltoall", says.reshape(self.size, -1))
        came[...] = np.concatenate([texts[self.rank] for texts in every])

    def _reduce_all(
        self, source: int, into: int, count: int, dtype: str, operation: str, stream: int
    ) -> None:
        assert (source, dtype, operation) == (into, "NCCL_FLOAT32", "NCCL_SUM")
        values = np.ctypeslib.as_array((ctypes.c_float * count).from_address(into))
        self.gpus.reduce(self.rank, values, self.gpus.streams[stream])

    def mark(self) -> Any:
        """Return the stream's position."""
        self._marks += 1
        return super().mark()

    def reach(self, mark: Any) -> None:
        """Wait for a mark."""
        super().reach(mark)
        self.ahead.append(self._marks - 1 - len(self.ahead))

    def allgather(self, value: Any) -> list[Any]:
        """Return every rank's value."""
        return self.gpus.meet(self.rank, "allgather", value)

    def barrier(self) -> None:
        """Meet the others."""
        self.gpus.meet(self.rank, "barrier")

    def check(self) -> None:
        """Go on."""


# -- CuPy, and the kernels -------------------------------------------------------------------------


def empty(shape: Any, dtype: Any) -> DeviceArray:
    """Return memory of any values."""
    values = np.empty(shape, dtype)
    block = Block(_here.gpu, max(values.nbytes, 1))
    return DeviceArray(block, block.bytes[: values.nbytes].view(dtype).reshape(shape))


def asarray(array: Any) -> DeviceArray:
    """Launch a copy of an array's current content."""
    if isinstance(array, DeviceArray):
        return array
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def _arange(*bounds: Any, **how: Any) -> DeviceArray:
    return asarray(np.arange(*bounds, **how))


def _query(event: Event) -> int:
    if not event.point:
        _here.gpu.gpus.step()
    return 0 if event.point else _NOT_READY


def _memory() -> tuple[int, int]:
    gpu = _here.gpu
    return _MEMORY - gpu.used, _MEMORY


def _launch(run: Callable[[], Any]) -> None:
    _here.gpu.stream.put(run)


def _begin(
    into: DeviceArray, out: DeviceArray, block: Sentences, noise: Any, rules: Any, *, copies: int
) -> Callable[[], Losses]:
    assert copies == _here.gpu.gpus.size
    tokens, offsets, lrs = (each.values for each in (block.tokens, block.offsets, block.lrs))
    vectors, end, found = (into.values, out.values), Event(), list[Losses]()

    def run() -> None:
        given = Sentences(tokens.copy(), offsets.copy(), lrs.copy(), block.first, block.epoch)
        found.append(cpu.train(*vectors, given, noise, rules, threads=1))

    _launch(run)
    end.record()

    def losses() -> Losses:
        end.synchronize()
        return found[0]

    return losses


def _changes(base: DeviceArray, copies: Sequence[DeviceArray]) -> DeviceArray:
    moved = empty(base.shape, base.dtype)
    into, before, after = moved.values, base.values, [copy.values for copy in copies]

    def run() -> None:
        into[...] = naive.changes(before, after)

    _launch(run)
    return moved


def _mean_square(weights: DeviceArray, vectors: DeviceArray) -> DeviceArray:
    square = empty((), np.float64)
    into, of, rows = square.values, weights.values, vectors.values

    def run() -> None:
        into[...] = naive.mean_square(of, rows)

    _launch(run)
    return square


def _apply_changes(base: DeviceArray, copies: Sequence[DeviceArray], *given: Any) -> None:
    *arrays, exchange = given
    into, copied = base.values, [copy.values for copy in copies]
    moved, pairs, square = (array.values for array in arrays)
    _launch(lambda: naive.apply_changes(into, copied, moved, pairs, square[()], exchange))


def install(monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
    """Let these modules of word2vec, and all that communicates, take these GPUs for theirs."""
    runtime = SimpleNamespace(eventQuery=_query, memGetInfo=_memory)
    cuda, cupy = ModuleType("cupy.cuda"), ModuleType("cupy")
    names = ("INT8 UINT8 INT32 UINT32 FLOAT16 FLOAT32 FLOAT64 INT64 UINT64 SUM").split()
    cuda.__dict__.update(
        Event=Event,
        Stream=lambda **how: Stream(_here.gpu.gpus),
        get_current_stream=lambda: _here.gpu.stream,
        runtime=runtime,
        nccl=SimpleNamespace(**{f"NCCL_{name}": f"NCCL_{name}" for name in names}),
    )
    cupy.__dict__.update(
        cuda=cuda, ndarray=DeviceArray, asarray=asarray, empty=empty, arange=_arange,
        int32=np.int32, empty_like=lambda array: empty(array.shape, array.dtype),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    kernels = SimpleNamespace(
        begin=_begin,
        changes=_changes,
        mean_square=_mean_square,
        apply_changes=_apply_changes,
        start_rows=lambda seed, words, dim: asarray(naive.start_rows(seed, words.get(), dim)),
        noise_table=lambda counts: naive.noise_table(counts.get()),
        keep_thresholds=lambda counts, sample: naive.keep_thresholds(counts.get(), sample),
    )

    class Pool(ThreadPoolExecutor):
        """Whose threads launch on the GPU of the rank that made it."""

        def __init__(self, threads: int) -> None:
            gpu = _here.gpu
            super().__init__(threads, initializer=lambda: setattr(_here, "gpu", gpu))

    patches: dict[str, Any] = {
        "gpu": lambda: True,
        "kernel": lambda name, array: kernels,
        "to_device": asarray,
        "arrays_of_device": lambda: cupy,
        "wait_for_gpu": lambda: _here.gpu.stream.synchronize(),
        "ThreadPoolExecutor": Pool,
    }
    for module in modules:
        for name, value in patches.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
