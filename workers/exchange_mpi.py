"""Arrays between ranks through MPI: host memory, and GPU memory where MPI is CUDA-aware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.workers.exchange import Pending, flatten
from penstock.workers.mpi import load_mpi

# MPI counts in int in most libraries: what is longer travels in pieces, on both sides alike.
PIECE = 1 << 30
# Tags of our own collectives: below the 32,767 that every MPI offers, above what users may use.
TAGS = 1 << 14
_EXCHANGE = TAGS + 1

# What NumPy's type characters mean to every MPI; other types travel as bytes.
KNOWN = frozenset("?bBhHiIlLqQfd")
_OPERATIONS = {"sum": "SUM", "min": "MIN", "max": "MAX", "prod": "PROD"}
_NARROW = {2: np.float32}  # half precision is reduced in single


def pieces(array: Any, size: int | None = None) -> list[Any]:
    """Return a flat array as consecutive views of at most ``size`` elements."""
    size = size or PIECE
    flat = array.reshape(-1)
    return [flat[i : i + size] for i in range(0, max(flat.size, 1), size)]


def as_bytes(array: Any) -> Any:
    """Return the memory of a contiguous array as a flat view of bytes."""
    if not array.flags.c_contiguous:
        raise ValueError(
            f"an array of shape {array.shape} is sent that is not contiguous: make it so with "
            "numpy.ascontiguousarray, and keep it until the request is done"
        )
    return array.reshape(-1).view(np.uint8)


class MpiExchange:
    """What one rank of a gang says to the others through its MPI communicator."""

    def __init__(self, comm: Any) -> None:
        self._mpi, self._comm = load_mpi(), comm
        self.rank, self.size = int(comm.rank), int(comm.size)

    def isend(self, array: Any, to: int, tag: int) -> Any:
        """Start to send; the array must not change until the request is done."""
        if array.dtype.char in KNOWN and array.nbytes <= PIECE:
            return self._comm.Isend(array, to, tag)
        return [self._comm.Isend(piece, to, tag) for piece in pieces(as_bytes(array))]

    def irecv(self, array: Any, source: int, tag: int) -> Any:
        """Start to receive into an array of the very size that is sent."""
        if array.dtype.char in KNOWN and array.nbytes <= PIECE:
            return self._comm.Irecv(array, source, tag)
        return [self._comm.Irecv(piece, source, tag) for piece in pieces(as_bytes(array))]

    def iallreduce(self, array: Any, operation: str) -> Pending:
        """Start to reduce over all ranks, in place."""
        how = getattr(self._mpi, _OPERATIONS[operation])
        as_bytes(array)  # says what is wrong where it is not contiguous
        requests = [
            self._comm.Iallreduce(self._mpi.IN_PLACE, piece, op=how) for piece in pieces(array)
        ]
        # mpi4py's requests keep their arrays alive, but not those of a reduction.
        return Pending(requests, keep=array)

    def ibroadcast(self, array: Any, root: int) -> list[Any]:
        """Start to copy the root's array to all ranks."""
        return [self._comm.Ibcast(piece, root=root) for piece in pieces(as_bytes(array))]

    def ialltoallv(self, outgoing: Sequence[Any], incoming: Sequence[Any]) -> list[Any]:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""
        requests: list[Any] = []
        for step in range(1, self.size):  # everybody begins with another neighbour
            source = (self.rank - step) % self.size
            if incoming[source].size:
                requests += flatten(self.irecv(incoming[source], source, _EXCHANGE))
        for step in range(1, self.size):
            to = (self.rank + step) % self.size
            if outgoing[to].size:
                requests += flatten(self.isend(outgoing[to], to, _EXCHANGE))
        if incoming[self.rank].size:
            incoming[self.rank][...] = outgoing[self.rank]
        return requests

    def ibarrier(self) -> Any:
        """Start to wait for all ranks."""
        return self._comm.Ibarrier()

    def start(self) -> None:
        """Nothing to do: MPI starts what is posted."""

    def abort(self) -> None:
        """Nothing to do: the communicator withdraws what it posted."""

    def ended(self) -> None:
        """Nothing to do: the communicator frees what it has."""


def reducible(array: Any) -> Any:
    """Return the type in which MPI can reduce an array: half precision has none of its own."""
    return _NARROW.get(array.dtype.itemsize) if array.dtype.kind == "f" else None
