"""Shards of a corpus train copies of the vectors, which are combined at exchanges.

Between two exchanges every shard trains on its own words, beginning with the same vectors. If the
shards trained one after the other, a row with few pairs would move by about the sum of the shards'
changes. A row with many pairs moves most of the way to its optimum in every shard alone, and with n
shards the sum would overshoot n times. (With sums alone, training on text diverges; with means it
takes n times as long.)

So each row moves by a share of the sum. A step with learning rate r moves a row towards its optimum
by about ``h r`` of the way (h: the curvature of the loss), u steps of a shard by ``f = 1 - exp(-h r
u)``, and n shards one after the other by ``1 - (1 - f)**n``. That is the share ``(1 - (1 - f)**n) /
(n f)`` of the sum of their changes: 1 if f is small, 1/n if it is near 1. u follows from the count
of a word. The curvatures of all directions add up to the mean square of the rows that a row is
multiplied with, but differ widely, because rows have much in common. So h is their mean, which is
near that of most directions; and the share is bounded: even if all the curvature were in one
direction, a row would overshoot its optimum by less than its distance before.

On GPUs everything stays on the device: while one piece of a table travels, the next is subtracted,
and the host waits for neither. Kernels do the arithmetic: ``changes``, ``mean_square`` and
``apply_changes`` of naive/word2vec.py.
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

# Numbers that are combined at a time: on CPUs few enough for the caches, between GPUs enough for
# the rate of their links (64 MB). Two pieces are in flight at once.
_CHUNK_VALUES, _DEVICE_CHUNK_VALUES = 1 << 22, 1 << 24

Pair = tuple[AnyArray, AnyArray]  # input and output vectors


class Shards:
    """The copies of the vectors that one rank trains.

    count    number of shards on all ranks; this rank has ``numbers`` of them
    pairs    pairs of each row per word of the corpus, of both vectors
    weights  share of the multiplications that use each row
    ordered  add the shards' changes in their order, on any ranks: the same bytes
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
        """Move the vectors by the changes of all shards, and restart all copies from them.

        words  of all shards since the last exchange; lr: their learning rate
        On a GPU this only launches; it is done after ``comm.synchronize()``.
        """
        exchange = Exchange(self.count, words, lr)
        # The other table's: an input vector is multiplied with output vectors.
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
        """Return the changes of all shards, valid after the returned requests."""
        comm = self.comm
        base, copies = self._rows(which, rows)
        if not self.ordered:
            moved = self._kernels.changes(base, copies)
            return moved, comm.iallreduce(moved)
        moved = np.zeros_like(base)
        if comm.rank > 0:
            comm.wait([comm.irecv(moved, comm.rank - 1)])
        # Diverged values are NaN: the losses show that, and training stops.
        with np.errstate(invalid="ignore", over="ignore"):
            for copy in copies:
                moved += copy - base
        last = comm.size - 1
        if comm.rank < last:
            comm.wait([comm.isend(moved, comm.rank + 1)])
        if last > 0:
            comm.broadcast(moved, last)
        return moved, []
