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

On GPUs all of it stays on the device: while one piece of a table travels, the next is subtracted,
and the host waits for none of them.
"""

from __future__ import annotations

from collections import deque
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
# Of vectors that are combined at a time: on cores what stays in caches, between GPUs what is large
# enough for the rate of their links (64 MB). Two of them are under way at once.
_CHUNK_VALUES, _DEVICE_CHUNK_VALUES = 1 << 22, 1 << 24

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
        On a GPU it is launched, and done when the current stream is: ``comm.synchronize()``.
        """
        shares = self._shares(words, rate)
        on_host = isinstance(self.vectors[0], np.ndarray)
        size = max(1, (_CHUNK_VALUES if on_host else _DEVICE_CHUNK_VALUES) // self._dimension)
        chunks = [
            (which, slice(at, at + size))
            for which, base in enumerate(self.vectors)
            for at in range(0, len(base), size)
        ]

        def combine(chunk: tuple[int, slice]) -> None:
            self._apply(*chunk, self._changes(*chunk)[0], shares)

        if self.comm.size == 1 and on_host:
            spread(combine, chunks, self.threads)
            return
        waiting: deque[tuple[int, slice, Any, Any]] = deque()
        for which, rows in chunks:  # in the same order on all ranks
            waiting.append((which, rows, *self._changes(which, rows)))
            if len(waiting) > 1:
                self._finish(*waiting.popleft(), shares)
        while waiting:
            self._finish(*waiting.popleft(), shares)

    @property
    def _dimension(self) -> int:
        return int(self.vectors[0].shape[1])

    def _changes(self, which: int, rows: slice) -> tuple[Any, Any]:
        """Return what all shards have changed, and the requests after which it is that."""
        base, comm = self.vectors[which][rows], self.comm
        copies = [copy[which][rows] for copy in self.copies]
        # What diverged is not a number: the losses say so, and training stops.
        with np.errstate(invalid="ignore", over="ignore"):
            if not self.ordered:
                moved = copies[0] - base
                for copy in copies[1:]:
                    moved += copy - base
                return moved, comm.iallreduce(moved)
            moved = np.zeros_like(base)
            if comm.rank > 0:
                comm.wait([comm.irecv(moved, comm.rank - 1)])
            for copy in copies:
                moved += copy - base
        last = comm.size - 1
        if comm.rank < last:
            comm.wait([comm.isend(moved, comm.rank + 1)])
        if last > 0:
            comm.broadcast(moved, last)
        return moved, []

    def _finish(self, which: int, rows: slice, moved: Any, requests: Any, shares: Pair) -> None:
        self.comm.follow(requests)
        self._apply(which, rows, moved, shares)

    def _apply(self, which: int, rows: slice, moved: Any, shares: Pair) -> None:
        base = self.vectors[which][rows]
        with np.errstate(invalid="ignore", over="ignore"):
            moved *= shares[which][rows]
            base += moved
        for copy in self.copies:
            copy[which][rows] = base

    def _shares(self, words: int, rate: float) -> Pair:
        """Return the share of the sums by which each row moves: (V, 1) of both vectors."""
        found = []
        for pairs, others in zip(self.pairs, reversed(self.vectors), strict=True):
            square = self._mean_square(others)
            steepest = (_CURVATURE * square * rate * words / self.count).astype(np.float32)
            most = np.maximum(pairs * steepest, 1e-6)
            way = np.maximum(most / others.shape[1], 1e-6)
            share = np.expm1(-self.count * way) / (self.count * np.expm1(-way))
            bound = (-_FURTHEST / self.count) / np.expm1(-most)
            found.append(np.minimum(share, bound).reshape(-1, 1))
        return found[0], found[1]

    def _mean_square(self, vectors: Any) -> Any:
        """Return the mean square of rows, by how often they are multiplied with, as a float64.

        It stays on the device, for which the host does not wait.
        """
        squares, size = self.weights.copy(), max(1, _DEVICE_CHUNK_VALUES // self._dimension)
        for at in range(0, len(vectors), size):
            rows = vectors[at : at + size]
            squares[at : at + size] *= (rows * rows).sum(axis=1)
        return squares.sum().astype(np.float64)
