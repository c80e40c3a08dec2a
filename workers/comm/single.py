"""A gang of one: the communicator of a rank that is the only one, without MPI.

    run_single(name, train, (task,))      in a plain task of Dask

It has Communicator's interface, so that an algorithm is written once. Every exchange completes at
once: only what a rank sends to itself is copied.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.arrays import AnyArray
from penstock.errors import UsageError
from penstock.workers.comm.agreement import check_own
from penstock.workers.comm.reports import Reports, given_up

if TYPE_CHECKING:
    from penstock.workers.comm.communicator import Communicator
    from penstock.workers.comm.exchange import Requests

    AnyCommunicator: TypeAlias = "Communicator | SingleRank"

Message = tuple[AnyArray, int, int]  # array, peer, tag
OPERATIONS = ("sum", "min", "max", "prod")


def check_operation(operation: str) -> None:
    """Raise UsageError unless ranks can reduce by ``operation``."""
    if operation not in OPERATIONS:
        raise UsageError(
            f"ranks cannot reduce by {operation!r}", expected=f"one of {', '.join(OPERATIONS)}"
        )


class Abandoned(BaseException):
    """Raised in a rank whose client left or gave it up: not an Exception, like Cancelled."""


class SingleRank:
    """The communicator of the only rank.

    report     receives reports for the client: {"done": 1} or {"metrics": {...}}
    cancelled  whether the run must end; ``check`` and the reports then end it
    """

    rank, size = 0, 1

    def __init__(
        self,
        report: Callable[[dict[str, Any]], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self._report, self._cancelled = report, cancelled
        self._sent: dict[int, deque[AnyArray]] = defaultdict(deque)  # by tag, not yet received
        self._awaited: dict[int, deque[AnyArray]] = defaultdict(deque)

    # Point to point: from this rank to itself

    def isend(self, array: AnyArray, to: int, tag: int = 0) -> Requests:
        """Send to rank 0; the array is copied."""
        _check_rank(to)
        self._sent[tag].append(array.copy())
        self._deliver(tag)
        return []

    def irecv(self, array: AnyArray, source: int, tag: int = 0) -> Requests:
        """Receive from rank 0, now or later."""
        _check_rank(source)
        self._awaited[tag].append(array)
        self._deliver(tag)
        return []

    def _deliver(self, tag: int) -> None:
        while self._sent[tag] and self._awaited[tag]:
            self._awaited[tag].popleft()[...] = self._sent[tag].popleft()

    def persistent(
        self, *, sends: Sequence[Message] = (), receives: Sequence[Message] = ()
    ) -> RepeatedMessages:
        """Set up repeated messages, each (array, rank, tag)."""
        return RepeatedMessages(self, sends, receives)

    def start(self) -> None:
        """Do nothing: no message is pending."""

    def wait(self, requests: Requests, timeout: float | None = None) -> None:
        """Return at once: every request is done."""

    def follow(self, requests: Requests) -> None:
        """Return at once: every request is done."""

    def test(self, requests: Requests) -> bool:
        """Return True: every request is done."""
        return True

    def synchronize(self) -> None:
        """Return when the GPU, if any, has completed all launches on this stream."""
        from penstock.workers.resources.device import gpu, wait_for_gpu

        if gpu():
            wait_for_gpu()

    def mark(self) -> Any:
        """Return the current position of the GPU's stream, for ``reach``."""
        from penstock.workers.resources.device import gpu

        if not gpu():
            return None
        import cupy

        end = cupy.cuda.Event(disable_timing=True)
        end.record()
        return end

    def reach(self, mark: Any) -> None:
        """Return when the stream has reached the mark."""
        if mark is not None:
            mark.synchronize()

    def check(self) -> None:
        """Raise if the client no longer waits for the result."""
        if self._cancelled is not None and self._cancelled():
            raise Abandoned

    # Collectives

    def iallreduce(self, array: AnyArray, operation: str = "sum") -> Requests:
        """Leave the array as it is: it is the sum, minimum, maximum or product of one."""
        check_operation(operation)
        return []

    def allreduce(self, array: AnyArray, operation: str = "sum") -> AnyArray:
        """Return the array."""
        self.iallreduce(array, operation)
        return array

    def broadcast(self, array: AnyArray, root: int = 0) -> AnyArray:
        """Return the array."""
        _check_rank(root)
        return array

    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Copy the one array to the other."""
        (source,), (into,) = outgoing, incoming
        check_own(source, into)
        into.reshape(-1)[:] = source.reshape(-1)
        return []

    def alltoallv(
        self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        """Copy the one array to the other, and return ``incoming``."""
        self.ialltoallv(outgoing, incoming)
        return incoming

    def alltoall(self, array: AnyArray) -> AnyArray:
        """Return a copy of the array, which has one row."""
        return array.copy()

    def allgather(self, value: Any) -> list[Any]:
        """Return the value as a list."""
        return [value]

    def barrier(self) -> None:
        """Return at once."""

    def transport(self, array: AnyArray) -> str:
        """Return how arrays travel: they do not."""
        return "one rank"

    # Reports to the client

    def advance(self, amount: int = 1) -> None:
        """Report ``amount`` more units as done; raise if the client no longer waits."""
        self.check()
        if self._report is not None:
            self._report({"done": int(amount)})

    def log(self, **metrics: float | int | str) -> None:
        """Send figures to the client, such as ``loss=0.3, epoch=2``."""
        self.check()
        if self._report is not None:
            self._report({"metrics": metrics})


class RepeatedMessages:
    """Messages in the same arrays each time, sent one by one."""

    def __init__(
        self, owner: AnyCommunicator, sends: Sequence[Message], receives: Sequence[Message]
    ) -> None:
        self._owner, self._sends, self._receives = owner, sends, receives
        self._open: list[Requests] = []

    def start(self) -> None:
        """Start one round; its arrays must not change until ``wait``."""
        self._open = [self._owner.irecv(*message) for message in self._receives]
        self._open += [self._owner.isend(*message) for message in self._sends]
        self._owner.start()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the round is done: received and sent."""
        self._owner.wait(self._open, timeout)

    def close(self) -> None:
        """Release nothing."""


def call_named(name: str, *arguments: Any) -> Any:
    """Call the function ``module:function``; only here its module is imported."""
    return resolve_name(name)(*arguments)


def run_single(gang: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run ``function(comm, *args)`` as a gang of one, in an ordinary task of Dask.

    gang  the name under which the client listens, see penstock.cluster.gang.listening
    """
    reports = Reports(gang, rank=0)
    try:
        return function(SingleRank(reports, given_up()), *args)
    finally:
        reports.flush()


def _check_rank(rank: int) -> None:
    if rank != 0:
        raise UsageError("this gang does not have such a rank", expected="0", got=str(rank))
