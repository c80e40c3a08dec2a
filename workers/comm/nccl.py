"""NCCL communicators of this process, kept between gangs: making one takes a second."""

from __future__ import annotations

import atexit
import hashlib
import threading
import time
from collections.abc import Hashable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ClusterError
from penstock.workers.comm.wait import Waiter
from penstock.workers.resources.device import has_come

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

_KEPT = 2  # communicators: each may take two GB of the GPU's memory
_ABORT_SECONDS = 3.0
_ID_BYTES = 128
_NOT_READY = 600  # cudaErrorNotReady
_FIRST = -100  # the highest priority of a stream: CUDA takes the nearest available one

_kept: dict[Hashable, Link] = {}  # the latest last
_lock = threading.Lock()
_unfinished: list[
    Request
] = []  # MPI requests of gangs that failed: late messages need their memory


class Link:
    """An NCCL communicator, its stream, and its past uses."""

    def __init__(self, communicator: Any, name: str) -> None:
        import cupy

        self.communicator, self.name = communicator, name
        self.stream = cupy.cuda.Stream(non_blocking=True, priority=_FIRST)
        # Existing connections: a peer and whether we send, or a collective and its size.
        self.met: set[tuple[int | str, int]] = set()

    def reached(self, event: Any) -> bool:
        """Return whether an event of the stream has completed; raise an earlier error."""
        come = has_come(event)
        if not come:
            self.communicator.check_async_error()
        return come

    def abort(self) -> None:
        """End its work on the GPU and release it, without the other ranks."""
        import cupy

        self.communicator.abort()
        end = time.monotonic() + _ABORT_SECONDS
        query = cupy.cuda.runtime.streamQuery
        while query(self.stream.ptr) == _NOT_READY and time.monotonic() < end:
            time.sleep(0.001)


def keep(key: Hashable, link: Link) -> None:
    """Keep a communicator whose gang succeeded, and release the one that was idle longest."""
    _clean_up_at_exit()
    with _lock:
        _kept[key] = link
        oldest = [_kept.pop(next(iter(_kept)))] if len(_kept) > _KEPT else []
    for one in oldest:
        one.abort()


def kept(key: Hashable) -> Link | None:
    """Take the communicator kept for these ranks; the caller owns it now."""
    with _lock:
        return _kept.pop(key, None)


@cache
def _clean_up_at_exit() -> None:
    atexit.register(_abort_all)  # while the CUDA driver still exists


def _abort_all() -> None:
    with _lock:
        links = list(_kept.values())
        _kept.clear()
    for link in links:
        link.abort()


def connect(comm: Comm, waiter: Waiter, timeout: float) -> Link:
    """Make an NCCL communicator together with all ranks of an MPI communicator."""
    import cupy
    from cupy.cuda import nccl

    name = np.zeros(_ID_BYTES, np.uint8)
    if comm.rank == 0:
        name[:] = np.frombuffer(_to_bytes(nccl.get_unique_id()), np.uint8)
    wait_for(waiter, [comm.Ibcast(name, root=0)], timeout)

    made: list[Any] = []
    given_up = threading.Event()
    device = cupy.cuda.Device()

    def make() -> None:
        try:
            with device:
                made.append(_communicator(int(comm.size), name.tobytes(), int(comm.rank)))
            if given_up.is_set():
                made[0].abort()
        except Exception as error:
            made.append(error)

    # In a thread, which is abandoned if the gang ends while NCCL waits for a dead rank.
    threading.Thread(target=make, name="penstock-nccl", daemon=True).start()
    try:
        waiter.wait_until(lambda: bool(made), timeout)
    except BaseException:
        given_up.set()
        raise
    if isinstance(made[0], Exception):
        raise ClusterError(
            "NCCL cannot connect the GPUs of this gang",
            got=str(made[0]),
            remedy="Run it again with NCCL_DEBUG=WARN in the environment of the workers, which "
            "writes the reason to their logs",
        ) from made[0]
    return Link(made[0], hashlib.blake2b(name.tobytes(), digest_size=8).hexdigest())


def wait_for(waiter: Waiter, requests: Sequence[Request], timeout: float) -> None:
    """Wait for internal MPI requests; keep their memory if the wait is interrupted."""
    try:
        waiter.wait(requests, timeout)
    except BaseException:
        _unfinished.extend(requests)
        raise


def _communicator(size: int, name: bytes, rank: int) -> Any:
    from cupy.cuda import nccl

    try:
        return nccl.NcclCommunicator(size, name, rank)
    except TypeError:  # before CuPy 14: a tuple of signed characters
        signed = tuple(np.frombuffer(name, np.int8).tolist())
        return nccl.NcclCommunicator(size, signed, rank)


def _to_bytes(name: Any) -> bytes:
    return name if isinstance(name, bytes) else np.array(name, np.int8).tobytes()
