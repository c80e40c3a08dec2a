"""Arrays between GPUs through NCCL, in an order that every rank keeps.

NCCL has neither tags nor the freedom of MPI: launches of one rank must match those of the others.
So messages are collected, and launched together when a rank waits for one, calls ``start()`` or
begins a collective; within a batch the messages of a pair of ranks match by tag. Collectives launch
at once. Ranks must begin batches and collectives in the same order.

All work runs in a separate stream, after the caller's current stream as it is at the launch. That
stream has a higher priority than computing streams: an NCCL kernel takes a few whole
multiprocessors, and would otherwise wait until the last block of an earlier launch has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.errors import UsageError
from penstock.workers.comm.exchange import Exchange, Pending, Requests
from penstock.workers.comm.exchange_mpi import TAGS
from penstock.workers.comm.nccl import Link, keep, wait_for
from penstock.workers.comm.wait import Waiter

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

# NCCL's names of NumPy's type characters; types without a reduction that fit a wider one: sums and
# products of 16-bit integers wrap to the same 16 bits.
_NAMES = {"b": "INT8", "B": "UINT8", "i": "INT32", "I": "UINT32", "e": "FLOAT16", "f": "FLOAT32"}
_NAMES |= {"d": "FLOAT64", "l": "INT64", "q": "INT64", "L": "UINT64", "Q": "UINT64"}
_WIDER = {"h": np.dtype(np.int32), "H": np.dtype(np.uint32)}

_REMEMBERED = 1000  # events before completed ones are dropped

_SENDER, _RECEIVER = TAGS + 2, TAGS + 3  # tags with which two ranks meet

Message = tuple[int, int, DeviceArray]  # tag, peer, array


def reduced_as(dtype: np.dtype[Any]) -> tuple[str, np.dtype[Any] | None]:
    """Return NCCL's name of the type of a reduction, and the type if it is wider."""
    wider = _WIDER.get(dtype.char)
    name = "BFLOAT16" if dtype.name == "bfloat16" else _NAMES.get((wider or dtype).char)
    if name is None:
        raise UsageError(
            f"GPUs cannot reduce arrays of {dtype.name}",
            expected="integers or floats of at most 64 bits",
            remedy="Reduce .view(uint8) of booleans: max is or, min is and; for complex "
            "numbers reduce .view() of their floats",
        )
    return name, wider


def by_tag(messages: Iterable[Message]) -> list[Message]:
    """Return messages by tag, equal tags as posted: the same order on both sides."""
    return sorted(messages, key=itemgetter(0))


def to_everyone(arrays: Sequence[DeviceArray]) -> list[Message]:
    """Return messages for, or from, every rank, without empty ones."""
    return [(0, peer, array) for peer, array in enumerate(arrays) if array.nbytes]


def on_device(array: AnyArray) -> DeviceArray:
    """Return a contiguous array of any library as CuPy's, without a copy."""
    import cupy

    found: DeviceArray = array if isinstance(array, cupy.ndarray) else cupy.asarray(array)
    if not found.flags.c_contiguous:
        raise UsageError(
            f"an array of shape {array.shape} cannot travel between GPUs",
            expected="a contiguous array",
            remedy="Make one with cupy.ascontiguousarray, and keep it until the request is done",
        )
    return found


class _Batch:
    def __init__(self) -> None:
        self.sends: list[Message] = []
        self.receives: list[Message] = []
        self.end: Any = None


class NcclExchange(Exchange):
    """One rank's exchanges through an NCCL communicator."""

    transport = "NCCL"

    def __init__(self, comm: Comm, waiter: Waiter, key: Any, link: Link, timeout: float) -> None:
        import cupy
        from cupy.cuda import nccl

        self._cuda, self._nccl = cupy.cuda, nccl
        self._comm, self._waiter, self._timeout = comm, waiter, timeout
        self.rank = int(comm.rank)
        self._key, self._link = key, link
        self._nccl_comm, self._stream = link.communicator, link.stream
        self._ready = self._event()
        self._batch = _Batch()
        # The caller's streams, and the events that they wait for.
        self._followed: list[tuple[int, Any]] = []

    # Messages

    def isend(self, array: AnyArray, to: int, tag: int) -> Requests:
        """Collect a message to send; the array must not change until it is waited for."""
        return self._post(self._batch.sends, array, to, tag)

    def irecv(self, array: AnyArray, source: int, tag: int) -> Requests:
        """Collect a message to receive."""
        return self._post(self._batch.receives, array, source, tag)

    def start(self) -> None:
        """Launch the collected messages.

        Ranks that exchange their first message wait here for each other.
        """
        batch = self._batch
        if batch.sends or batch.receives:
            self._exchange(by_tag(batch.sends), by_tag(batch.receives))
            self._batch, batch.end = _Batch(), self._end()

    def _post(self, messages: list[Message], array: AnyArray, peer: int, tag: int) -> Pending:
        array = on_device(array)
        if not array.nbytes:
            return Pending()
        messages.append((tag, peer, array))
        batch = self._batch
        return Pending(
            poll=partial(self._through, batch), follow=partial(self._follow_batch, batch)
        )

    def _through(self, batch: _Batch) -> bool:
        if batch.end is None:
            self.start()
        return self._link.reached(batch.end)

    def _follow_batch(self, batch: _Batch) -> None:
        if batch.end is None:
            self.start()
        self._wait_in_stream(batch.end)

    def _exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Send and receive as one group, whose messages do not wait for each other."""
        self._meet({peer for _, peer, _ in sends}, {peer for _, peer, _ in receives})
        self._follow()
        comm, stream, as_bytes = self._nccl_comm, self._stream.ptr, self._nccl.NCCL_UINT8
        self._nccl.groupStart()
        try:
            for _, peer, array in sends:
                comm.send(array.data.ptr, array.nbytes, as_bytes, peer, stream)
            for _, peer, array in receives:
                comm.recv(array.data.ptr, array.nbytes, as_bytes, peer, stream)
        finally:
            self._nccl.groupEnd()

    def _meet(self, to: set[int], source: set[int]) -> None:
        """Wait for peers without a connection yet.

        NCCL connects to a peer at the first message, and cannot be cancelled during that wait.
        """
        found = {(peer, 1) for peer in to} | {(peer, 0) for peer in source}
        new = {way for way in found if way[0] != self.rank} - self._link.met
        if new:
            requests = []
            for peer, sending in sorted(new):
                mine, its = (_SENDER, _RECEIVER) if sending else (_RECEIVER, _SENDER)
                requests.append(self._comm.Irecv(np.zeros(1, np.uint8), peer, its))
                requests.append(self._comm.Isend(np.zeros(1, np.uint8), peer, mine))
            wait_for(self._waiter, requests, self._timeout)
            self._link.met |= new

    def is_first(self, collective: str, array: AnyArray) -> bool:
        """Return whether this is the first collective of its kind and approximate size.

        NCCL chooses an algorithm by them, and connects the ranks at the first use of each.
        """
        array = on_device(array)
        kind = f"{collective} {array.dtype.char}", array.nbytes.bit_length()
        first = kind not in self._link.met
        self._link.met.add(kind)
        return first

    # Collectives

    def iallreduce(self, array: AnyArray, operation: str) -> Requests:
        """Start to reduce over all ranks, in place."""
        array = on_device(array)
        name, wider = reduced_as(array.dtype)
        self.start()
        if not array.nbytes:
            return Pending()
        wide = array if wider is None else array.astype(wider)
        self._follow()
        self._nccl_comm.allReduce(
            wide.data.ptr,
            wide.data.ptr,
            wide.size,
            getattr(self._nccl, f"NCCL_{name}"),
            getattr(self._nccl, f"NCCL_{operation.upper()}"),
            self._stream.ptr,
        )

        def narrow() -> None:
            array[...] = wide

        return self._until_end([wide], None if wider is None else narrow)

    def ibroadcast(self, array: AnyArray, root: int) -> Requests:
        """Start to copy the root's array to all ranks."""
        array = on_device(array)
        self.start()
        if not array.nbytes:
            return Pending()
        self._follow()
        where, size = array.data.ptr, array.nbytes
        as_bytes = self._nccl.NCCL_UINT8
        self._nccl_comm.broadcast(where, where, size, as_bytes, root, self._stream.ptr)
        return self._until_end([array])

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""
        sends, receives = list(map(on_device, outgoing)), list(map(on_device, incoming))
        self.start()
        # The rank's own part too: copied along with the others it costs nothing.
        self._exchange(to_everyone(sends), to_everyone(receives))
        return self._until_end(sends + receives)

    # The stream

    def followed(self) -> list[Callable[[], bool]]:
        """Return checks for the events that a stream waits for since the last call, in order."""
        followed, self._followed = self._followed, []
        return [partial(self._link.reached, event) for _, event in followed]

    def _wait_in_stream(self, end: Any) -> None:
        stream = self._cuda.get_current_stream()
        if (stream.ptr, end) in self._followed[-1:]:
            return  # messages of one batch share their event
        stream.wait_event(end)
        if len(self._followed) >= _REMEMBERED:  # the caller never asks
            self._followed = [one for one in self._followed if not self._link.reached(one[1])]
        self._followed.append((stream.ptr, end))

    def _follow(self) -> None:
        """Make the next launch wait for the caller's current stream."""
        self._ready.record()
        self._stream.wait_event(self._ready)

    def _event(self) -> Any:
        return self._cuda.Event(disable_timing=True)

    def _end(self) -> Any:
        end = self._event()
        end.record(self._stream)
        return end

    def _until_end(
        self, arrays: list[DeviceArray], finish: Callable[[], None] | None = None
    ) -> Pending:
        # The arrays live as long as the request, since another stream uses them.
        end = self._end()
        return Pending(
            poll=partial(self._link.reached, end),
            finish=finish,
            keep=arrays,
            follow=partial(self._wait_in_stream, end),
        )

    # The end

    def abort(self) -> None:
        """End the work on the GPU: nothing can be sent afterwards."""
        self._link.abort()

    def ended(self) -> None:
        """Keep the communicator for the next gang of these ranks."""
        keep(self._key, self._link)
