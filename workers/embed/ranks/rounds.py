"""What each of several ranks trains when: rounds of two blocks, and the states of their buffers.

Partitions are grouped into two blocks a rank. In a round every rank has two blocks, and trains all
edges from one to the other; over the rounds of an epoch all blocks meet (partition/tournament.py).
Edges within a block can be trained in every round: they are divided equally among all, so that
they are mixed with as many others as there are.

The edges of a round are no sample of the graph: a node meets but those of two blocks. Where all is
in memory and moving is cheap, an epoch is therefore several laps: in each all blocks meet, to train
another part of every bucket. (On FB15k-237 with two ranks, after ten epochs, one lap an epoch cost
1.5 % of the MRR, and four 1.0 %.)

Which partitions are a block is redrawn in each lap. Negatives come from the two blocks that are
there: over the epochs they are a sample of the whole graph all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.streams import Stream
from penstock.partition.order import PartitionOrder, State
from penstock.partition.tournament import tournament
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule, ScheduledState, Share
from penstock.workers.embed.spec import BATCH, Training

# What draws of EMBED_SHUFFLE are for, in the upper bits of their numbers; see train.py's.
_BLOCKS, _WITHIN = 5, 6
_MIXED = 64  # partitions of all blocks of a rank's kind are enough to draw blocks from
_MOST_PIECES = 8  # partitions of a block that is whole in memory
_FEWEST_NODES = 16  # of such a partition
_MOST_LAPS = 8  # of an epoch
_LAP_EDGES = 4  # of each node in a lap, at least
# Epochs that are examined for the worst swap: this many partitions in all.
_LOOKED_AT, _MOST_EPOCHS = 512, 16


def partitions_in_memory(nodes: int, ranks: int) -> int:
    """Return how many partitions there are where each rank's two blocks are in its memory.

    There are several in a block so that other ones can be a block in the next epoch.
    """
    pieces = min(max(_MIXED // ranks, 2), _MOST_PIECES, nodes // (2 * ranks * _FEWEST_NODES))
    return 2 * ranks * max(pieces, 1)


def partitions_of(training: Training, nodes: int, ranks: int) -> int:
    """Return into how many partitions ranks divide the nodes for a training run."""
    if ranks == 1 or (training.partitions or 1) > 1:
        return training.partitions or 1
    return partitions_in_memory(nodes, ranks)


def laps_in_memory(nodes: int, edges: int, ranks: int, batch: int = BATCH) -> int:
    """Return how many laps an epoch is: few where nodes that move have few edges to train."""
    rounds = ranks * (2 * ranks - 1)  # of all ranks
    two = 2 * max(batch, BATCH) * rounds  # batches a round, or more laps mix nothing more
    return max(1, min(_MOST_LAPS, edges // (_LAP_EDGES * nodes), edges // two))


def order_in_memory(partitions: int) -> PartitionOrder:
    """Return the order of a buffer that holds all of this many partitions."""
    return PartitionOrder("memory", partitions, partitions, (tuple(range(partitions)),))


class RankSchedule(BucketSchedule):
    """The steps of one rank, as ``BucketSchedule`` has them of a rank that is alone.

    All ranks have as many, and whatever their number, every bucket is trained once an epoch.

    ranks, rank  how many there are, and which this is
    partitions   of all ranks, a multiple of 2 * ranks
    made         returns the order in which a number of partitions meet in the buffer; None: all fit
    laps         of an epoch: how often all blocks meet
    """

    def __init__(
        self,
        ranks: int,
        rank: int,
        partitions: int,
        made: Callable[[int], PartitionOrder] | None,
        *,
        laps: int = 1,
        seed: int = 0,
    ) -> None:
        assert partitions % (2 * ranks) == 0
        self.laps = laps
        self.ranks, self.rank, self.partitions = ranks, rank, partitions
        mine = partitions // ranks
        super().__init__((order_in_memory if made is None else made)(mine), seed=seed, spread=True)
        self.rounds = tournament(ranks)
        self._blocks = cache(self._draw_blocks)
        self._within = BucketSchedule(self.order, relabel=False, spread=True)

    def __len__(self) -> int:
        """How many states an epoch has."""
        return self.laps * len(self.rounds) * len(self.order.states)

    @cached_property
    def hiding(self) -> float:
        """How many buckets are trained while a partition is exchanged, at the least.

        Of some epochs, as which partitions meet is drawn in each of them; of many partitions, the
        worst comes in nearly every one. Where partitions go from one rank to another, nothing is
        trained.
        """
        epochs = min(_MOST_EPOCHS, max(1, _LOOKED_AT // self.partitions))
        return min(
            (
                sum(1 / share.of for share in step.during) / len(step.evict)
                for epoch in range(epochs)
                for step in self.scheduled(epoch)
                if step.evict
            ),
            default=math.inf,
        )

    def holders(self, epoch: int, number: int) -> tuple[int, ...]:
        """Return which rank has each partition in a state of an epoch."""
        found = [-1] * self.partitions
        lap, turn = divmod(number // len(self.order.states), len(self.rounds))
        blocks = self._blocks(epoch * self.laps + lap)
        for rank, pair in enumerate(self.rounds[turn]):
            for block in pair:
                for partition in blocks[block]:
                    found[partition] = rank
        return tuple(found)

    def scheduled(self, epoch: int) -> Iterator[ScheduledState]:
        """Yield the steps of ``epoch``."""
        states, turns = self.order.states, len(self.rounds)
        for number in range(self.laps * turns):
            lap, turn = divmod(number, turns)
            blocks = self._blocks(epoch * self.laps + lap)
            one, other = (blocks[block] for block in self.rounds[turn][self.rank])
            here = [*one, *other]
            keys = self._keys(_WITHIN, epoch * self.laps * turns + number, len(here))
            here = [here[i] for i in np.argsort(keys, kind="stable")]
            # Other parts of the edges in the same round of each epoch.
            lap, turn = (lap + epoch) % self.laps, (turn + epoch) % turns
            block_of = {p: i for i, of in enumerate((one, other)) for p in of}
            place = _Round(block_of, (lap, self.laps), (turn, turns))
            for step in self._within.scheduled(epoch):
                buffer, evict, load = (
                    tuple(here[p] for p in some) for some in (step.buffer, step.evict, step.load)
                )
                before, during = (
                    tuple(place.share(share, here) for share in shares)
                    for shares in (step.before, step.during)
                )
                state = number * len(states) + step.number
                yield ScheduledState(state, buffer, evict, load, before, during)

    def _draw_blocks(self, lap: int) -> tuple[State, ...]:
        """Return the partitions of every block in a lap."""
        keys = self._keys(_BLOCKS, lap, self.partitions)
        drawn = [int(p) for p in np.argsort(keys, kind="stable")]
        size = self.partitions // (2 * self.ranks)
        return tuple(tuple(drawn[i : i + size]) for i in range(0, len(drawn), size))

    def _keys(self, what: int, number: int, count: int) -> Array:
        first = (what << 60) + (number << 20)
        return random_keys(self.seed, Stream.EMBED_SHUFFLE, first, count)


@dataclass(frozen=True)
class _Round:
    """One round on one rank.

    block_of  which of its two blocks a partition is in
    lap       which part of all edges is trained in this lap, and of how many
    turn      of these, which part of the edges within a block in this round, and of how many
    """

    block_of: dict[int, int]
    lap: tuple[int, int]
    turn: tuple[int, int]

    def share(self, of: Share, here: list[int]) -> Share:
        """Return what of a share is trained, whose bucket names positions in ``here``."""
        i, j = bucket = here[of.bucket[0]], here[of.bucket[1]]
        part, parts = self.lap
        if self.block_of[i] == self.block_of[j]:  # they meet in every round
            part, parts = part * self.turn[1] + self.turn[0], parts * self.turn[1]
        return Share(bucket, part * of.of + of.part, parts * of.of)
