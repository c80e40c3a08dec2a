"""What kernels of one large graph need to compute it on several ranks, each a part of its edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.arrays import AnyArray
from penstock.csr import CSR


class Ranks(Protocol):
    """A communicator, such as those of workers/comm."""

    rank: int
    size: int

    def isend(self, array: AnyArray, to: int, tag: int = 0) -> Any:
        """Start to send."""

    def irecv(self, array: AnyArray, source: int, tag: int = 0) -> Any:
        """Start to receive."""

    def allreduce(self, array: AnyArray, operation: str = "sum") -> Any:
        """Combine the arrays of all ranks in place."""

    def follow(self, requests: Any) -> None:
        """Make later work of this thread or stream wait for the requests."""

    def synchronize(self) -> None:
        """Wait for this rank's GPU, if it has one; raise if another rank has failed."""


@dataclass(frozen=True, eq=False)
class EdgesOfRank(CSR):
    """All rows of a graph, but only the edges from ``first_edge`` on that a rank holds."""

    first_edge: int = 0


def cuts(length: int, ranks: Ranks | None) -> list[int]:
    """Return where each rank's share of ``length`` things begins, and the end."""
    size = 1 if ranks is None else ranks.size
    return [length * rank // size for rank in range(size + 1)]


def share(bounds: Sequence[int], ranks: Ranks | None) -> tuple[int, int]:
    """Return the bounds of this rank's share."""
    rank = 0 if ranks is None else ranks.rank
    return bounds[rank], bounds[rank + 1]


def gather(array: AnyArray, bounds: Sequence[int], ranks: Ranks | None) -> None:
    """Fill an array of which each rank has its share."""
    if ranks is None:
        return
    low, high = share(bounds, ranks)
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    came = [ranks.irecv(array[bounds[rank] : bounds[rank + 1]], rank) for rank in others]
    ranks.follow([*came, *(ranks.isend(array[low:high], rank) for rank in others)])


def passed_around(mine: AnyArray, into: AnyArray, ranks: Ranks) -> Iterator[AnyArray]:
    """Yield the array of each other rank, one after another in ``into``."""
    for step in range(1, ranks.size):
        to, source = (ranks.rank + step) % ranks.size, (ranks.rank - step) % ranks.size
        ranks.follow([ranks.irecv(into, source), ranks.isend(mine, to)])
        yield into
