"""What is trained in each state of the buffer: bucket shares, before the swap and during it.

A partition order (``penstock.partition.order``) says in which order its labels meet. Here labels
become partitions, anew each epoch, and every bucket of edges finds the states in which it is
trained. All buckets of a phase can be trained together, and should be: the edges of one bucket
after another are no sample of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

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
class Step:
    """One buffer state of one epoch.

    number      counts the states of the epoch
    buffer      the partitions that are in the buffer
    evict, load what is swapped meanwhile
    before      shares that need what is evicted
    during      shares that do not: they train while the swap runs
    """

    number: int
    buffer: State
    evict: State
    load: State
    before: tuple[Share, ...]
    during: tuple[Share, ...]


class Schedule:
    """The steps of every epoch.

    order    in which labels 0 .. n - 1 meet
    relabel  whether labels stand for other partitions each epoch. Those that the last state of an
             epoch holds are those of the first state of the next: nothing moves in between
    spread   whether a bucket is trained in equal shares in all states that hold it, rather than
             wholly in the first; edges are mixed with more others then, and less hides each swap
    """

    def __init__(
        self, order: PartitionOrder, *, seed: int = 0, relabel: bool = True, spread: bool = False
    ) -> None:
        self.order, self.seed, self.relabel, self.spread = order, seed, relabel, spread
        self._labels = cache(self._draw_labels)

    def __len__(self) -> int:
        """How many states an epoch has."""
        return len(self.order.states)

    @cached_property
    def hiding(self) -> float:
        """How many buckets are trained while a partition is exchanged, at the least.

        Shares of buckets count as such. Infinite where nothing is exchanged.
        """
        # Labels stand for other partitions each epoch, and as much is trained.
        exchanges = (step for step in self.steps(0) if step.evict)
        return min(
            (sum(1 / share.of for share in step.during) / len(step.evict) for step in exchanges),
            default=math.inf,
        )

    def labels(self, epoch: int) -> tuple[int, ...]:
        """Return the partition that each label of the order stands for in ``epoch``."""
        if not self.relabel:
            return tuple(range(self.order.partitions))
        for earlier in range(epoch):  # from the cache, but for the first; no deep recursion
            self._labels(earlier)
        return self._labels(epoch)

    def states(self, epoch: int) -> tuple[State, ...]:
        """Return the partitions of every buffer state of ``epoch``."""
        labels = self.labels(epoch)
        return tuple(tuple(labels[label] for label in state) for state in self.order.states)

    def steps(
        self, epoch: int, *, wanted: Callable[[Bucket], bool] | None = None
    ) -> Iterator[Step]:
        """Yield the steps of ``epoch``; of every bucket, or of those that are ``wanted``."""
        states = self.states(epoch)
        places: dict[Bucket, list[int]] = {}
        for number, state in enumerate(states):
            for bucket in ((i, j) for i in state for j in state):
                if wanted is None or wanted(bucket):
                    places.setdefault(bucket, []).append(number)
        shares: list[list[Share]] = [[] for _ in states]
        for bucket, numbers in places.items():
            chosen = numbers if self.spread else numbers[:1]
            for turn, number in enumerate(chosen):
                part = (turn + epoch) % len(chosen)  # another part of the edges each epoch
                shares[number].append(Share(bucket, part, len(chosen)))
        for number, state in enumerate(states):
            after = states[number + 1] if number + 1 < len(states) else state
            evict = tuple(p for p in state if p not in after)
            load = tuple(p for p in after if p not in state)
            before = tuple(s for s in shares[number] if not set(s.bucket).isdisjoint(evict))
            during = tuple(s for s in shares[number] if set(s.bucket).isdisjoint(evict))
            yield Step(number, state, evict, load, before, during)

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
