"""Communication between the ranks of a gang, through MPI or NCCL.

    def step(comm, gradient):
        requests = [comm.irecv(ghosts, left), comm.isend(border, right)]
        ...                                 # compute what needs no ghosts
        comm.wait(requests)
        comm.allreduce(gradient)            # in place, over all ranks

On GPUs ``comm.follow(requests)`` makes the current stream wait instead of the host, which continues
to launch; ``comm.synchronize()`` waits for all of it, ``comm.reach(mark)`` for what was launched
before ``mark = comm.mark()``.

NumPy arrays travel through MPI; CuPy arrays through NCCL if every rank has its own GPU, else
through CUDA-aware MPI or pinned host memory. Arrays are contiguous, and sender and receiver agree
on type and size. A communicator belongs to one gang and to the thread that runs it.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from penstock.arrays import AnyArray
from penstock.errors import UsageError
from penstock.workers.comm.agreement import Agreement, check_own, described
from penstock.workers.comm.exchange import (
    Exchange,
    Pending,
    Requests,
    flatten,
    mpi_requests,
    pending_in,
    under_way,
)
from penstock.workers.comm.exchange_mpi import PIECE, TAGS, MpiExchange, reduced_as
from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.persistent_requests import PersistentRequests
from penstock.workers.comm.single import Message, RepeatedMessages, check_operation
from penstock.workers.comm.wait import Cancelled, Waiter
from penstock.workers.resources.device import has_come

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

# mpi4py's errors for types that MPI does not know; they travel as bytes.
_NOT_FOR_MPI = (KeyError, BufferError)
# Usually an epoch: sleeping would end too late.
_GPU_SPIN_SECONDS = 0.1


class Communicator:
    """One rank's place in a gang, and its way to the others."""

    def __init__(
        self,
        comm: Comm,
        waiter: Waiter,
        *,
        wait_timeout: float,
        device: Exchange | None = None,
        report: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.rank, self.size = int(comm.rank), int(comm.size)
        self.mpi = comm  # mpi4py's communicator, for other operations; it cannot be cancelled
        self.wait_timeout = wait_timeout
        self.waiter, self._request = waiter, load_mpi().Request
        self._host = MpiExchange(comm)
        self._device = device
        self._send, self._receive = comm.Isend, comm.Irecv
        self._error = load_mpi().Exception
        # Open requests: a late message of a failed gang must not reach freed memory.
        self._sends: list[Requests] = []
        self._receives: list[Requests] = []
        self._persistent: list[PersistentRequests] = []
        self._agreements: list[Requests] = []  # of requests that streams wait for
        self._report = report

    # Point to point

    def isend(self, array: AnyArray, to: int, tag: int = 0) -> Requests:
        """Start to send; the array must not change until the request is done."""
        # The common case is inlined: a message costs little more than MPI's own.
        if type(array) is ndarray and 0 <= to < self.size and 0 <= tag < TAGS:
            try:
                # MPI would accept a transposed matrix, and send it in memory order.
                if array.nbytes <= PIECE and (array.ndim < 2 or array.flags.c_contiguous):
                    request = self._send(array, to, tag)
                    self._sends.append(request)
                    return request
            except _NOT_FOR_MPI:
                pass
            except self._error as error:
                self._raise_unless_of_type(error)
        self.check_message(to, tag)
        request = self._exchange(array).isend(array, to, tag)
        self._sends.append(request)
        return request

    def irecv(self, array: AnyArray, source: int, tag: int = 0) -> Requests:
        """Start to receive into ``array``, which has the type and size of the sent array."""
        if type(array) is ndarray and 0 <= source < self.size and 0 <= tag < TAGS:
            try:
                if array.nbytes <= PIECE and (array.ndim < 2 or array.flags.c_contiguous):
                    request = self._receive(array, source, tag)
                    self._receives.append(request)
                    return request
            except _NOT_FOR_MPI:
                pass
            except self._error as error:
                self._raise_unless_of_type(error)
        self.check_message(source, tag)
        request = self._exchange(array).irecv(array, source, tag)
        self._receives.append(request)
        return request

    def persistent(
        self, *, sends: Sequence[Message] = (), receives: Sequence[Message] = ()
    ) -> PersistentRequests | RepeatedMessages:
        """Set up repeated messages, each (array, rank, tag): cheap to repeat.

        ``start()`` and ``wait()`` of the result make one round.
        """
        arrays = [array for array, _, _ in (*sends, *receives)]
        if not all(isinstance(one, np.ndarray) and one.nbytes <= PIECE for one in arrays):
            return RepeatedMessages(self, sends, receives)
        self._persistent.append(PersistentRequests(self, sends, receives))
        return self._persistent[-1]

    def start(self) -> None:
        """Start posted messages: NCCL starts them only on request."""
        if self._device is not None:
            self._device.start()

    def wait(self, requests: Requests, timeout: float | None = None) -> None:
        """Return when a request, or all of several, are done.

        Raises if the gang ends: another rank fails, or ``timeout`` seconds pass.
        """
        timeout = self.wait_timeout if timeout is None else timeout
        posted = self._receives + self._sends
        try:
            self.waiter.wait(requests, timeout)  # type: ignore[arg-type]
        except TypeError:  # not only MPI requests
            self._finish(flatten(requests), timeout)
        if requests == posted:  # all open requests, receives first
            self._receives.clear()
            self._sends.clear()
        else:
            self._receives[:] = [one for one in self._receives if under_way(one)]
            self._sends[:] = [one for one in self._sends if under_way(one)]

    def follow(self, requests: Requests) -> None:
        """Make the GPU's current stream wait for requests, instead of the host.

        Later launches on it find them done, and the host continues; errors appear at the next
        ``synchronize``. For arrays that travel through MPI the host waits.
        """
        if self._device is not None:
            self._device.start()
        rest, agreements = [], []
        for one in flatten(requests):
            if isinstance(one, Agreement):
                agreements.append(one)
                continue
            if not isinstance(one, Pending) or one.follow is None:
                rest.append(one)
                continue
            one.follow()
            one.follow = one.poll = None
            one.finish()
        if rest:
            self.wait([*agreements, *rest])
        else:
            self._agreements += agreements
            self._receives[:] = [one for one in self._receives if under_way(one)]
            self._sends[:] = [one for one in self._sends if under_way(one)]

    def synchronize(self) -> None:
        """Return when the GPU has completed all launches on the current stream.

        Like ``wait`` it raises if the gang ends. Each exchange that the stream follows may take its
        time-out, from the end of the one before; computation has no time-out.
        """
        self.reach(self.mark())

    def mark(self) -> Any:
        """Return the current position of the GPU's stream, for ``reach``."""
        if self._device is None:
            return None
        import cupy

        self._device.start()
        end = cupy.cuda.Event(disable_timing=True)
        end.record()
        agreements, self._agreements = self._agreements, []
        return agreements, self._device.followed(), end

    def reach(self, mark: Any) -> None:
        """Return when the stream has reached the mark; later launches may still run.

        Marks are reached in order, so the host can stay ahead of the GPU.
        """
        if mark is None:
            return
        agreements, followed, end = mark
        if agreements:
            self.wait(agreements)
        for reached in followed:
            self.waiter.wait_until(reached, self.wait_timeout, spin=_GPU_SPIN_SECONDS)
        self.waiter.wait_until(lambda: has_come(end), math.inf, spin=_GPU_SPIN_SECONDS)

    def test(self, requests: Requests) -> bool:
        """Return whether all are done, and make progress; call it between chunks of computation.

        MPI makes no progress by itself: a reduction that is never tested starts at the wait.
        """
        self.start()
        if not self.waiter.test(list(mpi_requests(requests))):
            return False
        if not all(one.poll is None or one.poll() for one in pending_in(requests)):
            return False
        self.wait(requests)
        return True

    def check(self) -> None:
        """Raise if the gang has ended: for long loops without communication."""
        if self.waiter.cancelled:
            raise Cancelled

    # Collectives: every rank calls them, in the same order

    def iallreduce(self, array: AnyArray, operation: str = "sum") -> Requests:
        """Start to combine the arrays of all ranks: sum, min, max or prod, in place."""
        check_operation(operation)
        return self._agreed(f"allreduce {operation}", array, partial(self._reduce, operation))

    def allreduce(self, array: AnyArray, operation: str = "sum") -> AnyArray:
        """Combine the arrays of all ranks in place, and return it."""
        check_operation(operation)
        start = partial(self._reduce, operation)
        self.wait(self._agreed(f"allreduce {operation}", array, start, waits=True))
        return array

    def broadcast(self, array: AnyArray, root: int = 0) -> AnyArray:
        """Copy the array of rank ``root`` into those of all ranks, and return it."""
        self.check_message(root, 0)
        start = partial(self._exchange(array).ibroadcast, root=root)
        self.wait(self._agreed(f"broadcast from {root}", array, start, waits=True))
        return array

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r, and to receive ``incoming[r]`` from it.

        Both lists have an array for every rank, of any length; rank r's outgoing[s] has the type
        and length of rank s's incoming[r].
        """
        for name, arrays in (("outgoing", outgoing), ("incoming", incoming)):
            if len(arrays) != self.size:
                raise UsageError(
                    f"alltoallv: {name} must have one array per rank",
                    expected=str(self.size),
                    got=str(len(arrays)),
                )
        exchange, *others = [self._exchange(array) for array in (*outgoing, *incoming)]
        if any(other is not exchange for other in others):
            raise UsageError("alltoallv: arrays on a GPU and in host memory", expected="one kind")
        check_own(outgoing[self.rank], incoming[self.rank])
        says, expects = [list(map(described, arrays)) for arrays in (outgoing, incoming)]
        agreement = self._agreement("alltoallv", says, expects)
        request = exchange.ialltoallv(outgoing, incoming)
        self._receives.append(request)
        return [agreement, request]

    def alltoallv(
        self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        """Send ``outgoing[r]`` to every rank r; return ``incoming``, filled."""
        self.wait(self.ialltoallv(outgoing, incoming))
        return incoming

    def alltoall(self, array: AnyArray) -> AnyArray:
        """Send row r to rank r; return the received rows by rank: counts before an alltoallv."""
        if len(array) != self.size:
            raise UsageError(
                "alltoall: the array must have one row per rank",
                expected=str(self.size),
                got=str(len(array)),
            )
        came = array.copy()
        # Slices, so that a row of one number stays an array.
        self.alltoallv(
            [array[r : r + 1] for r in range(self.size)],
            [came[r : r + 1] for r in range(self.size)],
        )
        return came

    def allgather(self, value: Any) -> list[Any]:
        """Return every rank's value; any object that can be pickled, small ones."""
        mine = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = mine.size
        self.allreduce(sizes)
        came = [np.empty(size, np.uint8) for size in sizes]
        self.alltoallv([mine] * self.size, came)
        return [pickle.loads(array.tobytes()) for array in came]

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self.wait([self._host.ibarrier()])

    def transport(self, array: AnyArray) -> str:
        """Return how such arrays travel: MPI messages, NCCL, ..."""
        return self._exchange(array).transport

    # Reports to the client

    def advance(self, amount: int = 1) -> None:
        """Report ``amount`` more units as done; the gang's progress bar shows the sum."""
        if self._report is not None:
            self._report({"done": int(amount)})

    def log(self, **metrics: float | int | str) -> None:
        """Send figures to the client while the gang runs, such as ``loss=0.3, epoch=2``."""
        if self._report is not None:
            self._report({"metrics": metrics})

    def _exchange(self, array: AnyArray) -> Exchange:
        if isinstance(array, np.ndarray):
            return self._host
        if not hasattr(array, "__cuda_array_interface__"):
            raise UsageError("ranks exchange NumPy and CuPy arrays", got=type(array).__name__)
        if self._device is None:
            raise UsageError(
                "an array on a GPU, in a gang whose workers compute on the CPU",
                remedy="Start the cluster with --device gpu",
            )
        return self._device

    def _agreed(
        self,
        collective: str,
        array: AnyArray,
        start: Callable[[AnyArray], Requests],
        *,
        waits: bool = False,
    ) -> Requests:
        """Compare the arrays of all ranks, which must agree, and start a collective.

        waits  whether it starts only after the comparison, as the caller waits anyway: Open MPI 4
               writes beyond an array that is smaller than another rank's
        """
        exchange = self._exchange(array)
        same = [collective.encode() + b" " + described(array)] * self.size
        agreement = self._agreement(collective, same, same)
        if exchange.is_first(collective, array) or waits:
            self.wait(agreement)
        request = start(array)
        self._sends.append(request)
        return [agreement, request]

    def _agreement(
        self, collective: str, says: Sequence[bytes], expects: Sequence[bytes]
    ) -> Agreement:
        # Before the arrays: if those disagree, MPI may mix up later messages.
        agreement = Agreement(self.mpi, collective, says, expects)
        self._sends.append(agreement)
        return agreement

    def _reduce(self, operation: str, array: AnyArray) -> Requests:
        exchange = self._exchange(array)
        if exchange is not self._host:
            return exchange.iallreduce(array, operation)
        wide = reduced_as(array.dtype, operation)
        if wide == array.dtype:
            return exchange.iallreduce(array, operation)
        copy = array.astype(wide)

        def narrow() -> None:
            with np.errstate(over="ignore"):  # overflow becomes infinite, as on a GPU
                array[...] = copy

        return Pending([exchange.iallreduce(copy, operation)], finish=narrow)

    def _finish(self, requests: Iterable[Requests], timeout: float) -> None:
        plain: list[Request] = []
        pending: list[Pending] = []
        for request in requests:
            if isinstance(request, Pending):
                pending.append(request)
            elif isinstance(request, self._request):
                plain.append(request)
            else:
                raise UsageError("wait takes the results of isend and the like", got=repr(request))
        if self._device is not None:
            self._device.start()
        for one in pending:  # in order: an agreement precedes its collective
            self._finish(flatten(one.requests), timeout)
            if one.poll is not None:
                self.waiter.wait_until(one.poll, timeout)
                one.poll = None
            one.finish()
        self.waiter.wait(plain, timeout)

    def _raise_unless_of_type(self, error: Any) -> None:
        # Open MPI 4 has no type for half precision: it travels as bytes.
        if error.Get_error_class() != load_mpi().ERR_TYPE:
            raise error

    def check_message(self, peer: int, tag: int) -> None:
        """Raise unless ``peer`` is a rank of this gang and ``tag`` is in the users' range."""
        if not 0 <= peer < self.size:
            ranks = f"0 to {self.size - 1}" if self.size > 1 else "0"
            raise UsageError("this gang does not have such a rank", expected=ranks, got=str(peer))
        if not 0 <= tag < TAGS:
            raise UsageError(
                "a message's tag is out of range", expected=f"0 to {TAGS - 1}", got=str(tag)
            )

    # For requests of this communicator, and for its gang

    def forget(self, requests: PersistentRequests) -> None:
        """Release an exchange that was closed."""
        self._persistent.remove(requests)

    def leave(self) -> None:
        """Wait for all ranks, then release everything; called after this rank has succeeded."""
        self.wait(self._agreements)
        self.barrier()
        if self._device is not None:
            self._device.ended()
        for requests in list(self._persistent):
            requests.close()
        self.mpi.Free()

    def abandon(self) -> list[Any]:
        """Withdraw open requests after a failure; return objects that must stay alive forever."""
        if self._device is not None:
            self._device.abort()
        sends, receives = list(mpi_requests(self._sends)), list(mpi_requests(self._receives))
        for request in (*receives, *sends):
            with suppress(load_mpi().Exception):  # errors do not matter now
                if request in receives:
                    request.Cancel()
                request.Test()
        kept = [one for one in (*self._sends, *self._receives) if under_way(one)]
        return [self.mpi, *kept, *(one for one in self._persistent if one.withdraw())]
