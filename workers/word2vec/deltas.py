"""Shards of a corpus that train copies of the vectors, and how these become one again.

Between two exchanges every shard trains on words of its own, from the same vectors on. Had they
followed one another, a row that sees few pairs would have moved by about the sum of what the shards
moved it; one that sees many goes most of the way to where it is drawn to in every shard alone, and
by the sum would overshoot as many times as there are shards. (With sums alone training on text
diverges, with means it takes as many times longer as there are shards.)

So each row moves by a share of the sum. A step of learning rate r draws a row towards where it
is best by about ``h r`` of the way, h the curvature of the loss, and u steps of a shard by
``f = 1 - exp(-h r u)``; n shards after one another by ``1 - (1 - f)**n``, which is the share
``(1 - (1 - f)**n) / (n f)`` of the sum of theirs: 1 where f is small, 1/n where it is near 1. u
follows from how often a word is. The curvatures of all directions add up to the mean square of the
rows that it is multiplied with, but are far from alike: rows have much in common. So h is that of
most directions, their mean; and the share is bounded so that even where all the curvature lay in
one direction a row would go beyond its best by less than it was away from it.

On GPUs all of it stays on the device: while one piece of a table travels, the next is subtracted,
and the host waits for none of them. The arithmetic is the kernels': ``changes``, ``mean_square``
and ``apply_changes`` of naive/word2vec.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray, copy_in_lines
from penstock.kernels import kernel
from penstock.kernels.word2vec_rules import Exchange
from penstock.threads import spread

if TYPE_CHECKING:
    from penstock.workers.comm.exchange import Requests
    from penstock.workers.comm.single import AnyCommunicator

# Of vectors that are combined at a time: on CPUs what stays in caches, between GPUs what is large
# enough for the rate of their links (64 MB). Two of them are under way at once.
_CHUNK_VALUES, _DEVICE_CHUNK_VALUES = 1 << 22, 1 << 24

Pair = tuple[AnyArray, AnyArray]  # input and output vectors


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
        weights: AnyArray,
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
        self._kernels = kernel("word2vec", vectors[0])

    def combine(self, words: int, lr: float) -> None:
        """Move the vectors by what all shards have changed, and start all copies from there.

        words  of all shards since the last time; lr: at which they were trained
        On a GPU it is launched, and done when the current stream is: ``comm.synchronize()``.
        """
        exchange = Exchange(self.count, words, lr)
        # Of the others: an input vector is multiplied with output vectors.
        squares = [
            self._kernels.mean_square(self.weights, vectors) for vectors in reversed(self.vectors)
        ]
        on_host = isinstance(self.vectors[0], np.ndarray)
        dimension = int(self.vectors[0].shape[1])
        size = max(1, (_CHUNK_VALUES if on_host else _DEVICE_CHUNK_VALUES) // dimension)
        chunks = [
            (which, slice(at, at + size))
            for which, base in enumerate(self.vectors)
            for at in range(0, len(base), size)
        ]

        def apply(which: int, rows: slice, moved: AnyArray) -> None:
            base, copies = self._rows(which, rows)
            pairs = self.pairs[which][rows]
            self._kernels.apply_changes(base, copies, moved, pairs, squares[which], exchange)

        def combine(chunk: tuple[int, slice]) -> None:
            apply(*chunk, self._changes(*chunk)[0])

        if self.comm.size == 1 and on_host:
            spread(combine, chunks, self.threads)
            return
        waiting: deque[tuple[int, slice, AnyArray, Requests]] = deque()

        def finish() -> None:
            which, rows, moved, requests = waiting.popleft()
            self.comm.follow(requests)
            apply(which, rows, moved)

        for which, rows in chunks:  # in the same order on all ranks
            waiting.append((which, rows, *self._changes(which, rows)))
            if len(waiting) > 1:
                finish()
        while waiting:
            finish()

    def _rows(self, which: int, rows: slice) -> tuple[AnyArray, list[AnyArray]]:
        return self.vectors[which][rows], [copy[which][rows] for copy in self.copies]

    def _changes(self, which: int, rows: slice) -> tuple[AnyArray, Requests]:
        """Return what all shards have changed, and the requests after which it is that."""
        comm = self.comm
        base, copies = self._rows(which, rows)
        if not self.ordered:
            moved = self._kernels.changes(base, copies)
            return moved, comm.iallreduce(moved)
        moved = np.zeros_like(base)
        if comm.rank > 0:
            comm.wait([comm.irecv(moved, comm.rank - 1)])
        # What diverged is not a number: the losses say so, and training stops.
        with np.errstate(invalid="ignore", over="ignore"):
            for copy in copies:
                moved += copy - base
        last = comm.size - 1
        if comm.rank < last:
            comm.wait([comm.isend(moved, comm.rank + 1)])
        if last > 0:
            comm.broadcast(moved, last)
        return moved, []
