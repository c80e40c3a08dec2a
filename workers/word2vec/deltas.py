"""Shards of a corpus that train copies of the vectors, and how these become one again.

Between two exchanges every shard trains on words of its own, from the same vectors on. Had they
followed one another, a row that sees few pairs would have moved by about the sum of what the shards
moved it; one that sees many goes most of the way to where it is drawn to in every shard alone, and
by the sum would overshoot as many times as there are shards. (With sums alone training on text
diverges, with means it takes as many times longer as there are shards.)

So each row moves by a share of the sum. A step of rate r draws a row towards where it is best by
about ``h r`` of the way, h the curvature of the loss, and u steps of a shard by
``f = 1 - exp(-h r u)``; n shards after one another by ``1 - (1 - f)**n``, which is the share
``(1 - (1 - f)**n) / (n f)`` of the sum of theirs: 1 where f is small, 1/n where it is near 1. u
follows from how often a word is. The curvatures of all directions add up to the mean square of the
rows that it is multiplied with, but are far from alike: rows have much in common. So h is that of
most directions, their mean; and the share is bounded so that even where all the curvature lay in
one direction a row would go beyond its best by less than it was away from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import copy_in_lines
from penstock.partition.threads import spread

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

# Of the square of the other rows: a sigmoid's is 1/4 at most.
_CURVATURE = 0.25
# How far a row may go, of its way to where it is best; beyond 2 every exchange would lead away.
_FURTHEST = 1.8
_CHUNK_VALUES = 1 << 22  # of vectors that are combined at a time

Pair = tuple[Any, Any]  # input and output vectors


class Shards:
    """The copies of the vectors that one rank trains.

    count    how many shards there are on all ranks; this rank has ``numbers`` of them
    pairs    how many pairs a word of the corpus brings to each row, of both vectors
    weights  how often each row is multiplied with, of all
    ordered  add what shards changed in their order, on whatever ranks they are: the same bytes
    """

    def __init__(
        self,
        comm: AnyCommunicator,
        vectors: Pair,
        pairs: Pair,
        weights: Any,
        count: int,
        *,
        ordered: bool,
        threads: int,
    ) -> None:
        self.comm, self.vectors, self.ordered = comm, vectors, ordered
        self.count, self.threads = count, threads
        self.pairs, self.weights = pairs, weights
        ranks, rank = comm.size, comm.rank
        self.numbers = range(count * rank // ranks, count * (rank + 1) // ranks)
        self.copies: list[Pair] = [
            (copy_in_lines(vectors[0]), copy_in_lines(vectors[1])) for _ in self.numbers
        ]

    def combine(self, words: int, rate: float) -> None:
        """Move the vectors by what all shards have changed, and start all copies from there.

        words  of all shards since the last time; rate: at which they were trained
        """
        shares = self._shares(words, rate)
        for which, base in enumerate(self.vectors):
            copies = [copy[which] for copy in self.copies]
            size = max(1, _CHUNK_VALUES // base.shape[1])
            chunks = [slice(at, at + size) for at in range(0, len(base), size)]
            if self.comm.size == 1 and isinstance(base, np.ndarray):
                spread(self._combiner(base, copies, shares[which]), chunks, self.threads)
            else:  # exchanges, in the same order on all ranks
                for chunk in chunks:
                    self._combiner(base, copies, shares[which])(chunk)

    def _combiner(self, base: Any, copies: Sequence[Any], shares: Any) -> Callable[[slice], None]:
        def combine(chunk: slice) -> None:
            rows = base[chunk]
            moved = np.zeros_like(rows)
            if self.ordered and self.comm.rank > 0:
                self.comm.wait([self.comm.irecv(moved, self.comm.rank - 1)])
            for copy in copies:
                moved += copy[chunk] - rows
            self._reduce(moved)
            rows += moved * shares[chunk]
            for copy in copies:
                copy[chunk] = rows

        return combine

    def _shares(self, words: int, rate: float) -> Pair:
        """Return the share of the sums by which each row moves: (V, 1) of both vectors."""
        found = []
        for pairs, others in zip(self.pairs, reversed(self.vectors), strict=True):
            square = float((self.weights * (others * others).sum(axis=1)).sum())
            most = pairs * np.float32(_CURVATURE * square * rate * words / self.count)
            most = np.maximum(most, np.float32(1e-6))
            way = np.maximum(most / np.float32(others.shape[1]), np.float32(1e-6))
            share = np.expm1(-self.count * way) / (self.count * np.expm1(-way))
            bound = np.float32(-_FURTHEST / self.count) / np.expm1(-most)
            found.append(np.minimum(share, bound).reshape(-1, 1))
        return found[0], found[1]

    def _reduce(self, moved: Any) -> None:
        comm = self.comm
        if not self.ordered:
            comm.allreduce(moved)
            return
        last = comm.size - 1
        if comm.rank < last:
            comm.wait([comm.isend(moved, comm.rank + 1)])
        if last > 0:
            comm.broadcast(moved, last)
