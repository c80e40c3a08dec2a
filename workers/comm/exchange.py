"""How arrays travel between the ranks of a gang: what every way there offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.arrays import AnyArray

# What starts one gives it, and who waits takes it: a request of MPI, a Pending, lists of these.
Requests = object


class Exchange(ABC):
    """How arrays of one kind of memory travel between ranks.

    What is not abstract is how it is with MPI: it starts what is posted, the host waits for its
    messages, and the communicator withdraws them and frees what it has.
    """

    transport: str
    """what people call it"""

    @abstractmethod
    def isend(self, array: AnyArray, to: int, tag: int) -> Requests:
        """Start to send; the array must not change until the request is done."""

    @abstractmethod
    def irecv(self, array: AnyArray, source: int, tag: int) -> Requests:
        """Start to receive."""

    @abstractmethod
    def iallreduce(self, array: AnyArray, operation: str) -> Requests:
        """Start to reduce over all ranks, in place."""

    @abstractmethod
    def ibroadcast(self, array: AnyArray, root: int) -> Requests:
        """Start to copy the root's array to all ranks."""

    @abstractmethod
    def ialltoallv(self, outgoing: Sequence[AnyArray], incoming: Sequence[AnyArray]) -> Requests:
        """Start to send ``outgoing[r]`` to every rank r and to receive ``incoming[r]`` from it."""

    def is_first(self, collective: str, array: AnyArray) -> bool:
        """Return whether ranks must have met before a collective, as none was like it."""
        return False

    def start(self) -> None:  # noqa: B027
        """Let everything travel that was posted so far."""

    def followed(self) -> list[Callable[[], bool]]:
        """Return how to ask for what a stream waits for since the last call, in that order."""
        return []

    def abort(self) -> None:  # noqa: B027
        """End what is under way; nothing can be sent afterwards."""

    def ended(self) -> None:  # noqa: B027
        """Say that every rank is through: what can serve the next gang may be kept."""


class Pending:
    """Something under way that is more than MPI requests.

    requests  MPI requests that must be done first
    poll      whether the rest is done; None: there is no rest
    finish    what remains to be done then, once
    keep      memory that must live until then
    follow    lets the current stream wait for the rest, in place of the host; None: it cannot
    """

    def __init__(
        self,
        requests: Sequence[Requests] = (),
        poll: Callable[[], bool] | None = None,
        finish: Callable[[], None] | None = None,
        keep: object = None,
        follow: Callable[[], None] | None = None,
    ) -> None:
        self.requests, self.poll, self._finish = list(requests), poll, finish
        self.keep, self.follow = keep, follow

    def finish(self) -> None:
        """Do what remains to be done, once."""
        finish, self._finish, self.keep = self._finish, None, None
        if finish is not None:
            finish()

    def __bool__(self) -> bool:
        return self._finish is not None or self.poll is not None or any(flatten(self.requests))


def flatten(requests: Requests) -> list[Any]:
    """Return the requests in nested lists of them."""
    if not isinstance(requests, list | tuple):
        return [] if requests is None else [requests]
    found: list[Any] = []
    for request in requests:
        if isinstance(request, list | tuple):
            found += flatten(request)
        elif request is not None:
            found.append(request)
    return found


def under_way(request: Requests) -> bool:
    """Return whether anything of a request, or of a list of them, is not done."""
    return any(map(bool, flatten(request))) if isinstance(request, list) else bool(request)


def pending_in(requests: Requests) -> Iterable[Pending]:
    """Yield what is more than MPI requests, also within others."""
    for request in flatten(requests):
        if isinstance(request, Pending):
            yield request
            yield from pending_in(request.requests)


def mpi_requests(requests: Requests) -> Iterable[Any]:
    """Yield the MPI requests that are not done, also within others."""
    for request in flatten(requests):
        if isinstance(request, Pending):
            yield from mpi_requests(request.requests)
        elif request:
            yield request
