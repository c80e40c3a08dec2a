"""Arrays between ranks through MPI: host memory, and GPU memory if MPI is CUDA-aware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray
from penstock.errors import UsageError
from penstock.workers.comm.exchange import Exchange, Pending, Requests
from penstock.workers.comm.mpi import load_mpi

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

# Most MPI libraries count in int: longer arrays travel in pieces, on both sides.
PIECE = 1 << 30
# Tags of collectives: below the 32,767 that every MPI offers, above the users' range.
TAGS = 1 << 14
_EXCHANGE = TAGS + 1

# Requests without another owner: MPI may still write to their memory.
_unfinished: list[Request] = []


def pieces(array: AnyArray, size: int | None = None) -> list[AnyArray]:
    """Return a flat array as consecutive views of at most ``size`` elements."""
    size = size or PIECE
    if array.ndim == 1 and array.size <= size:
        return [array]
    flat = array.reshape(-1)
    return [flat[i : i + size] for i in range(0, max(flat.size, 1), size)]


def as_bytes(array: AnyArray) -> AnyArray:
    """Return the memory of a contiguous array as a flat view of bytes."""
    if not array.flags.c_contiguous:
        raise UsageError(
            f"an array of shape {array.shape} cannot travel between ranks",
            expected="a contiguous array",
            remedy="Make one with numpy.ascontiguousarray, and keep it until the request is done",
        )
    if array.dtype.hasobject:
        raise UsageError(
            "an array of Python objects cannot travel between ranks",
            expected="an array of numbers, or comm.allgather for objects",
        )
    return array.reshape(-1).view(np.uint8)


class MpiExchange(Exchange):
    """One rank's exchanges through the MPI communicator of its gang."""

    transport = "MPI messages"

    def __init__(self, comm: Comm) -> None:
        self._mpi, self._comm = load_mpi(), comm
        self.rank, self.size = int(comm.rank), int(comm.size)

    def isend(self, array: AnyArray, to: int, tag: int) -> list[Requests]:
        """Start to send; the array must not change until the request is done."""
        return [self._comm.Isend(piece, to, tag) for piece in pieces(as_bytes(array))]

    def irecv(self, array: AnyArray, source: int, tag: int) -> list[Requests]:
        """Start to receive into an array of exactly the sent size."""
        return [self._comm.Irecv(piece, source, tag) for piece in pieces(as_bytes(array))]

    def iallreduce(self, array: AnyArray, operation: str) -> Pending:
        """Start to reduce over all ranks, in place."""
        how = getattr(self._mpi, operation.upper())
        as_bytes(array)  # raises if it is not contiguous
        requests = [
            self._comm.Iallreduce(self._mpi.IN_PLACE, piece, op=how) for piece in pieces(array)
        ]
        # mpi4py's requests keep their arrays alive, but not those of a reduction.
        return Pending(requests, keep=array)

    def ibroadcast(self, array: AnyArray, root: int) -> Requests:
        """Start to copy the root's array to all ranks."""
        return [self._comm.Ibcast(piece, root=root) for piece in pieces(as_bytes(array))]

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""
        sends, receives = [list(map(as_bytes, arrays)) for arrays in (outgoing, incoming)]
        receives[self.rank][:] = sends[self.rank]
        requests: list[Requests] = []
        try:
            for step in range(1, self.size):  # every rank begins with another neighbour
                source = (self.rank - step) % self.size
                if receives[source].size:
                    requests += self.irecv(receives[source], source, _EXCHANGE)
            for step in range(1, self.size):
                to = (self.rank + step) % self.size
                if sends[to].size:
                    requests += self.isend(sends[to], to, _EXCHANGE)
        except BaseException:
            _unfinished.extend(requests)
            raise
        return requests

    def ibarrier(self) -> Request:
        """Start to wait for all ranks."""
        return self._comm.Ibarrier()


def reduced_as(dtype: Any, operation: str) -> Any:
    """Return the type in which MPI reduces: single precision for half, else the array's own."""
    kinds = "iufc" if operation in ("sum", "prod") else "iuf"
    if dtype.kind not in kinds or not dtype.isnative:
        raise UsageError(
            f"ranks cannot reduce arrays of {dtype} by {operation}",
            expected="integers or floats",
            remedy="Reduce .view(uint8) of booleans: max is or, min is and",
        )
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind == "f" else dtype
