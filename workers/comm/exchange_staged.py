"""Arrays between GPUs through MPI: through pinned host memory, or directly if MPI can."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.workers.comm.exchange import Exchange, Pending, Requests
from penstock.workers.comm.exchange_mpi import MpiExchange
from penstock.workers.comm.exchange_nccl import on_device, reduced_as
from penstock.workers.comm.mpi import load_mpi

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


class StagedExchange(Exchange):
    """GPU to pinned memory, MPI, pinned memory to GPU: works everywhere, at the speed of hosts."""

    transport = "MPI messages from pinned host memory"

    def __init__(self, comm: Comm) -> None:
        import cupy

        self._cuda = cupy.cuda
        self._mpi = MpiExchange(comm)
        self.rank, self.size = self._mpi.rank, self._mpi.size
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._draining: list[tuple[Any, Any]] = []  # event, and memory that is read until then

    def isend(self, array: AnyArray, to: int, tag: int) -> Requests:
        """Copy to the host and start to send."""
        return self._mpi.isend(self._to_host([on_device(array)]), to, tag)

    def irecv(self, array: AnyArray, source: int, tag: int) -> Requests:
        """Start to receive; the wait copies the data to the GPU."""
        array = on_device(array)
        host = self._pinned(array.nbytes)
        return self._then_to_device(self._mpi.irecv(host, source, tag), [array], host)

    def iallreduce(self, array: AnyArray, operation: str) -> Requests:
        """Start to reduce over all ranks, in place; half precision in single."""
        array = on_device(array)
        name, _ = reduced_as(array.dtype)
        if self.size == 1 or not array.nbytes:
            return []
        wide = array.astype(np.float32) if name in ("FLOAT16", "BFLOAT16") else array
        host = self._to_host([wide])

        def narrow() -> None:
            array[...] = wide

        requests = self._mpi.iallreduce(host.view(wide.dtype), operation)
        return self._then_to_device(requests, [wide], host, None if wide is array else narrow)

    def ibroadcast(self, array: AnyArray, root: int) -> Requests:
        """Start to copy the root's array to all ranks."""
        array = on_device(array)
        if self.size == 1 or not array.nbytes:
            return []
        if self.rank == root:
            return self._mpi.ibroadcast(self._to_host([array]), root)
        host = self._pinned(array.nbytes)
        return self._then_to_device(self._mpi.ibroadcast(host, root), [array], host)

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""
        sends, receives = list(map(on_device, outgoing)), list(map(on_device, incoming))
        mine, own = sends[self.rank], receives[self.rank]
        if own.nbytes:
            own.data.copy_from_device_async(mine.data, mine.nbytes)
        sends[self.rank] = receives[self.rank] = mine.reshape(-1)[:0]
        out, came = self._to_host(sends), self._pinned(sum(array.nbytes for array in receives))
        requests = self._mpi.ialltoallv(_parts(out, sends), _parts(came, receives))
        return self._then_to_device(requests, receives, came)

    # Between host and GPU

    def _pinned(self, size: int) -> Array:
        """Return pinned memory; CuPy reuses it once it is unreferenced."""
        self._draining = [(end, host) for end, host in self._draining if not end.done]
        return np.frombuffer(self._cuda.alloc_pinned_memory(max(size, 1)), np.uint8, size)

    def _to_host(self, arrays: Sequence[DeviceArray]) -> Array:
        """Return the bytes of arrays, concatenated, once the caller's stream has made them."""
        host = self._pinned(sum(array.nbytes for array in arrays))
        self._stream.wait_event(self._now())
        self._copy(arrays, host, "copy_to_host_async")
        self._stream.synchronize()
        return host

    def _then_to_device(
        self,
        requests: Requests,
        arrays: Sequence[DeviceArray],
        host: Array,
        finish: Callable[[], None] | None = None,
    ) -> Pending:
        requests = requests if isinstance(requests, list) else [requests]
        # The caller's stream may still read the arrays.
        copy = partial(self._to_device, arrays, host, self._now(), finish)
        return Pending(requests, finish=copy)

    def _to_device(
        self,
        arrays: Sequence[DeviceArray],
        host: Array,
        ready: Any,
        finish: Callable[[], None] | None,
    ) -> None:
        self._stream.wait_event(ready)
        self._copy(arrays, host, "copy_from_host_async")
        end = self._now(self._stream)
        self._cuda.get_current_stream().wait_event(end)
        self._draining.append((end, (host, arrays)))
        if finish is not None:
            finish()

    def _copy(self, arrays: Sequence[DeviceArray], host: Array, how: str) -> None:
        for array, part in zip(arrays, _parts(host, arrays), strict=True):
            if array.nbytes:
                where = ctypes.c_void_p(part.ctypes.data)
                getattr(array.data, how)(where, array.nbytes, self._stream)

    def _now(self, stream: Any = None) -> Any:
        event = self._cuda.Event(disable_timing=True)
        event.record(stream)
        return event


class AwareExchange(StagedExchange):
    """Messages straight from GPU memory through a CUDA-aware MPI.

    Reductions and broadcasts still go through the host: libraries that accept GPU memory in
    messages do not all accept it in non-blocking collectives.
    """

    transport = "MPI messages from GPU memory"

    def isend(self, array: AnyArray, to: int, tag: int) -> Requests:
        """Start to send, once the caller's stream has made the array: MPI knows no streams."""
        return self._mpi.isend(self._settled([array])[0], to, tag)

    def irecv(self, array: AnyArray, source: int, tag: int) -> Requests:
        """Start to receive, once the caller's stream no longer reads the array."""
        return self._mpi.irecv(self._settled([array])[0], source, tag)

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""
        return self._mpi.ialltoallv(self._settled(outgoing), self._settled(incoming))

    def _settled(self, arrays: Sequence[AnyArray]) -> list[DeviceArray]:
        found = [on_device(array) for array in arrays]
        self._cuda.get_current_stream().synchronize()
        return found


def _parts(host: Array, arrays: Sequence[AnyArray]) -> list[Array]:
    ends = list(accumulate(array.nbytes for array in arrays))
    return [host[end - array.nbytes : end] for end, array in zip(ends, arrays, strict=True)]


@cache
def mpi_reads_gpus() -> bool:
    """Return whether the MPI library reports that it takes GPU memory."""
    try:
        query = ctypes.CDLL(load_mpi().__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):  # a library without this query
        return False
    return bool(query())
