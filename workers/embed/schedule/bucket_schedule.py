"""The shares of buckets that each state of the buffer trains, before the swap and during it.

A partition order (``penstock.partition.order``) is a sequence of sets of labels that are in the
buffer together. Here each epoch assigns partitions to labels, and each bucket of edges to the
states that train it. All buckets of a phase can be trained together, and should be: one bucket
after another would not be a sample of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from penstock.arrays import Array
from penstock.kernels.bucket_rules import RELABEL
from penstock.kernels.cpu.philox import random_words
from penstock.kernels.streams import Stream
from penstock.partition.order import Bucket, PartitionOrder, State


@dataclass(frozen=True)
class Share:
    """The ``part``-th of ``of`` equal parts of the edges in a bucket."""

    bucket: Bucket
    part: int = 0
    of: int = 1


@dataclass(frozen=True)
class ScheduledState:
    """One buffer state of one epoch.

    number      counts the states of the epoch
    buffer      the partitions that are in the buffer
    evict, load the partitions that are swapped
    before      shares that need an evicted partition
    during      shares that do not: they train while the swap runs
    """

    number: int
    buffer: State
    evict: State
    load: State
    before: tuple[Share, ...]
    during: tuple[Share, ...]


class BucketSchedule:
    """The steps of every epoch.

    order    in which labels 0 .. n - 1 meet
    slots    the number of partitions that the buffer holds
    relabel  whether each epoch assigns other partitions to labels. The first state of an epoch has
             the partitions of the last state of the epoch before: nothing moves in between

    A bucket is trained in equal shares in all states that hold it, not only in the first: edges are
    mixed with more others, and less training hides each swap.
    """

    def __init__(self, order: PartitionOrder, *, seed: int = 0, relabel: bool = True) -> None:
        self.order, self.seed, self.relabel = order, seed, relabel
        self.slots = max(map(len, order.states))
        self._labels = cache(self._draw_labels)

    def __len__(self) -> int:
        """The number of states of an epoch."""
        return len(self.order.states)

    def holders(self, epoch: int, number: int) -> tuple[int, ...]:
        """Return the rank of each partition in a state of an epoch: a single rank has them all."""
        return (0,) * self.order.partitions

    @cached_property
    def hiding(self) -> float:
        """The least number of buckets that are trained while a partition is exchanged.

        A share counts as a fraction of a bucket. Infinite if nothing is exchanged.
        """
        # The same in each epoch, whatever partitions the labels have.
        states, (_, of, _) = np.array(self.order.states), self._turns
        kept = (states[:-1, :, None] == states[1:, None, :]).any(axis=2)
        evicted = states.shape[1] - kept.sum(axis=1)
        trained = 1 / of
        during = (kept[:, :, None] & kept[:, None, :]).reshape(trained[:-1].shape)
        hidden = (trained[:-1] * during).sum(axis=1)[evicted > 0] / evicted[evicted > 0]
        return float(hidden.min(initial=math.inf))

    def labels(self, epoch: int) -> tuple[int, ...]:
        """Return the partition of each label of the order in ``epoch``."""
        if not self.relabel:
            return tuple(range(self.order.partitions))
        for earlier in range(epoch):  # from the cache, except the first; no deep recursion
            self._labels(earlier)
        return self._labels(epoch)

    def states(self, epoch: int) -> tuple[State, ...]:
        """Return the partitions of every buffer state of ``epoch``."""
        labels = self.labels(epoch)
        return tuple(tuple(labels[label] for label in state) for state in self.order.states)

    def scheduled(self, epoch: int) -> Iterator[ScheduledState]:
        """Yield the steps of ``epoch``."""
        states = self.states(epoch)
        turns, counts, turn_order = self._turns
        for number, state in enumerate(states):
            after = states[number + 1] if number + 1 < len(states) else state
            evict = tuple(p for p in state if p not in after)
            load = tuple(p for p in after if p not in state)
            before: list[Share] = []
            during: list[Share] = []
            buckets = [(i, j) for i in state for j in state]
            turn, of = turns[number].tolist(), counts[number].tolist()
            for at in turn_order[number].tolist():
                bucket = buckets[at]
                part = (turn[at] + epoch) % of[at]  # each epoch another
                share = Share(bucket, part, of[at])
                stays = bucket[0] not in evict and bucket[1] not in evict
                (during if stays else before).append(share)
            yield ScheduledState(number, state, evict, load, tuple(before), tuple(during))

    @cached_property
    def _turns(self) -> tuple[Array, Array, Array]:
        """Return three arrays over the buckets (i, j) of every state: (states, held * held).

        The number of earlier states that hold the bucket; the number of all states that do; and
        each state's buckets in the order in which they first met. Buckets are of labels, so all
        epochs share these arrays.
        """
        states = np.array(self.order.states, np.int64)
        buckets = states[:, :, None] * self.order.partitions + states[:, None, :]
        shape = len(states), -1
        flat = buckets.ravel()
        by_bucket = np.argsort(flat, kind="stable")
        begins = np.flatnonzero(np.diff(flat[by_bucket], prepend=-1))
        sizes = np.diff(np.append(begins, len(flat)))
        turn, count, first = (np.empty(len(flat), np.int32) for _ in range(3))
        turn[by_bucket] = np.arange(len(flat)) - np.repeat(begins, sizes)
        count[by_bucket] = np.repeat(sizes, sizes)
        first[by_bucket] = np.repeat(by_bucket[begins], sizes)
        met = np.argsort(first.reshape(shape), axis=1).astype(np.int32)
        return turn.reshape(shape), count.reshape(shape), met

    def _draw_labels(self, epoch: int) -> tuple[int, ...]:
        count = self.order.partitions
        words = random_words(self.seed, Stream.EMBED_SHUFFLE, epoch * count, count, RELABEL)
        drawn = [int(p) for p in np.lexsort((words[:, 1], words[:, 0]))]
        if epoch == 0:
            return tuple(drawn)
        held = {self._labels(epoch - 1)[label] for label in self.order.states[-1]}
        first = [p for p in drawn if p in held]
        others = [p for p in drawn if p not in held]
        labels = [-1] * count
        for label in self.order.states[0]:
            labels[label] = (first or others).pop()
        rest = first + others
        for label in range(count):
            if labels[label] < 0:
                labels[label] = rest.pop()
        return tuple(labels)
