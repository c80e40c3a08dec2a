"""The schedule of several ranks: rounds of two blocks, and the states of each rank's buffer.

Partitions are grouped into two blocks per rank. In a round every rank has two blocks, and trains
all edges between them; over the rounds of an epoch all pairs of blocks meet
(partition/tournament.py). Edges within a block can be trained in every round of the block: they are
divided equally among these rounds, which mixes them with as many other edges as possible.

The edges of a round are not a sample of the graph: a node meets only the nodes of two blocks. If
everything is in memory and moving blocks is cheap, an epoch therefore consists of several laps: in
each lap all blocks meet, to train another part of every bucket. (On FB15k-237 with two ranks, after
ten epochs, one lap per epoch cost 1.5 % of the MRR, and four 1.0 %.)

The partitions of each block are redrawn in each lap. Negatives come from the rank's two blocks:
over the epochs they are still a sample of the whole graph.
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

# Upper bits of the numbers of EMBED_SHUFFLE's draws, one value per purpose; see also train.py.
_BLOCKS, _WITHIN = 5, 6
_MIXED = 64  # partitions of all ranks together: enough to draw blocks from
_MOST_PIECES = 8  # partitions of a block that is whole in memory
_FEWEST_NODES = 16  # of such a partition
_MOST_LAPS = 8  # of an epoch
_LAP_EDGES = 4  # edges of each node in a lap, at least
# Epochs that are examined for the worst swap have this many partitions in all, about.
_LOOKED_AT, _MOST_EPOCHS = 512, 16


def partitions_in_memory(nodes: int, ranks: int) -> int:
    """Return the number of partitions if each rank's two blocks are in its memory.

    A block has several partitions, so that the next epoch can form other blocks.
    """
    pieces = min(max(_MIXED // ranks, 2), _MOST_PIECES, nodes // (2 * ranks * _FEWEST_NODES))
    return 2 * ranks * max(pieces, 1)


def partitions_of(training: Training, nodes: int, ranks: int) -> int:
    """Return the number of partitions into which ranks divide the nodes."""
    if ranks == 1 or (training.partitions or 1) > 1:
        return training.partitions or 1
    return partitions_in_memory(nodes, ranks)


def laps_in_memory(nodes: int, edges: int, ranks: int, batch: int = BATCH) -> int:
    """Return the number of laps of an epoch: few if moved nodes have few edges to train."""
    rounds = ranks * (2 * ranks - 1)  # of all ranks
    two = 2 * max(batch, BATCH) * rounds  # batches a round, or more laps mix nothing more
    return max(1, min(_MOST_LAPS, edges // (_LAP_EDGES * nodes), edges // two))


def order_in_memory(partitions: int) -> PartitionOrder:
    """Return the order of a buffer that holds all partitions."""
    return PartitionOrder("memory", partitions, partitions, (tuple(range(partitions)),))


class RankSchedule(BucketSchedule):
    """The steps of one of several ranks; ``BucketSchedule`` has those of a single rank.

    All ranks have equally many steps. Every bucket is trained once per epoch for any number of
    ranks.

    ranks, rank  the number of ranks, and this rank
    partitions   of all ranks, a multiple of 2 * ranks
    made         returns the order in which a number of partitions meet in the buffer; None: all fit
    laps         how often all blocks meet in an epoch
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
        """The number of states of an epoch."""
        return self.laps * len(self.rounds) * len(self.order.states)

    @cached_property
    def hiding(self) -> float:
        """The least number of buckets that are trained while a partition is exchanged.

        It is the least of some epochs, since each epoch draws which partitions meet; with many
        partitions nearly every epoch has the worst case. While partitions move between ranks,
        nothing is trained.
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
        """Return the rank of each partition in a state of an epoch."""
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
            # In the same round of each epoch, train other parts of the edges.
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
        """Draw the partitions of every block in a lap."""
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

    block_of  the block of each partition, one of two
    lap       the part of all edges that this lap trains, and the number of parts
    turn      the part of the lap's edges within a block that this round trains, and the number
    """

    block_of: dict[int, int]
    lap: tuple[int, int]
    turn: tuple[int, int]

    def share(self, of: Share, here: list[int]) -> Share:
        """Return the part of a share to train; its bucket's numbers are positions in ``here``."""
        i, j = bucket = here[of.bucket[0]], here[of.bucket[1]]
        part, parts = self.lap
        # of one block, whose partitions meet in every round
        if self.block_of[i] == self.block_of[j]:
            part, parts = part * self.turn[1] + self.turn[0], parts * self.turn[1]
        return Share(bucket, part * of.of + of.part, parts * of.of)
