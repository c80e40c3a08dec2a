"""The interface of all ways in which arrays travel between the ranks of a gang."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.arrays import AnyArray

# An MPI request, a Pending, or lists of these.
Requests = object


class Exchange(ABC):
    """How arrays of one kind of memory travel between ranks.

    Defaults are those of MPI: it starts posted messages itself, the host waits for them, and the
    communicator withdraws and frees them.
    """

    transport: str
    """its usual name"""

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
        """Return whether ranks must meet before a collective, as it is the first of its kind."""
        return False

    def start(self) -> None:  # noqa: B027
        """Start all messages posted so far."""

    def followed(self) -> list[Callable[[], bool]]:
        """Return checks for the events that a stream waits for since the last call, in order."""
        return []

    def abort(self) -> None:  # noqa: B027
        """End open exchanges; nothing can be sent afterwards."""

    def ended(self) -> None:  # noqa: B027
        """Every rank has finished: keep what the next gang can use."""


class Pending:
    """An open exchange that is more than MPI requests.

    requests  MPI requests that must be done first
    poll      whether the rest is done; None: no rest
    finish    final work, done once
    keep      memory that must live until then
    follow    makes the current stream wait for the rest, instead of the host; None: impossible
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
        """Do the final work, once."""
        finish, self._finish, self.keep = self._finish, None, None
        if finish is not None:
            finish()

    def __bool__(self) -> bool:
        return self._finish is not None or self.poll is not None or any(flatten(self.requests))


def flatten(requests: Requests) -> list[Any]:
    """Return the requests of nested lists."""
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
    """Return whether a request, or any of a list, is not done."""
    return any(map(bool, flatten(request))) if isinstance(request, list) else bool(request)


def pending_in(requests: Requests) -> Iterable[Pending]:
    """Yield the requests that are more than MPI requests, also nested ones."""
    for request in flatten(requests):
        if isinstance(request, Pending):
            yield request
            yield from pending_in(request.requests)


def mpi_requests(requests: Requests) -> Iterable[Any]:
    """Yield the MPI requests that are not done, also nested ones."""
    for request in flatten(requests):
        if isinstance(request, Pending):
            yield from mpi_requests(request.requests)
        elif request:
            yield request
