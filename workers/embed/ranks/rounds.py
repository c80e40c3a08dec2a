"""The schedule of several ranks: rounds of two blocks, and the states of each rank's buffer.

Partitions are grouped into two blocks per rank. In a round every rank has two blocks, and trains
all edges between them; over the rounds of an epoch all pairs of blocks meet
(partition/tournament.py).

The edges of a round are not a sample of the graph: a node meets only the nodes of two blocks. If
everything is in memory and moving blocks is cheap, an epoch therefore consists of several laps: in
each lap all blocks meet, to train another part of every bucket. Edges within a block are divided
equally among all rounds, which mixes them with as many other edges as possible. (On FB15k-237 with
two ranks, after ten epochs, one lap per epoch cost 1.5 % of the MRR, and four 1.0 %.) After a lap
every rank divides its partitions anew into two blocks; no partition moves for that.

If memory holds only a few partitions, a round begins with the partitions that the round before left
in memory. The partitions of a block meet in the first round of an epoch, in the order of a single
rank. In the other rounds some of one block stay in memory while the other block passes: two of it
are in memory at a time, so that one trains while the other is swapped.

Negatives come from the rank's two blocks: over the epochs they are still a sample of the whole
graph.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.streams import Stream
from penstock.partition.order import PartitionOrder, State
from penstock.partition.tournament import moves, tournament
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


def partitions_of(training: Training, nodes: int, ranks: int) -> int:
    """Return the number of partitions into which ranks divide the nodes.

    A block in memory has several partitions, so that the next epoch can form other blocks.
    """
    if ranks == 1 or (training.partitions or 1) > 1:
        return training.partitions or 1
    pieces = min(max(_MIXED // ranks, 2), _MOST_PIECES, nodes // (2 * ranks * _FEWEST_NODES))
    return 2 * ranks * max(pieces, 1)


def laps_in_memory(nodes: int, edges: int, ranks: int, batch: int = BATCH) -> int:
    """Return the number of laps of an epoch: few if moved nodes have few edges to train."""
    rounds = ranks * (2 * ranks - 1)  # of all ranks
    two = 2 * max(batch, BATCH) * rounds  # batches a round, or more laps mix nothing more
    return max(1, min(_MOST_LAPS, edges // (_LAP_EDGES * nodes), edges // two))


def order_in_memory(partitions: int) -> PartitionOrder:
    """Return the order of a buffer that holds all partitions."""
    return PartitionOrder("memory", partitions, partitions, (tuple(range(partitions)),))


def moves_of(
    rank: int, before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (leaving partition, its new rank, coming partition, its old rank) of each exchange.

    before, after  the rank of each partition
    """
    for step in moves(before, after):
        mine = [move for move in step if rank in move[1:]]
        if mine:
            ((leaving, to),) = ((p, there) for p, here, there in mine if here == rank)
            ((coming, source),) = ((p, here) for p, here, there in mine if there == rank)
            yield leaving, to, coming, source


def order_between_blocks(size: int, slots: int) -> PartitionOrder:
    """Return an order in which partitions 0 .. size - 1 meet each of ``size`` others.

    Some of the first block stay while the second block passes, forwards and backwards in turn. Two
    of it are in memory, so that one trains while the other is swapped.
    """
    few = min(slots - 2, size)
    staying, passing, at_once = [*range(few)], [*range(size, 2 * size)], min(slots - few, size)
    states = [(*staying, *passing[:at_once])]
    for first in range(0, size, few):
        for place, partition in enumerate(range(first, min(first + few, size))):
            if staying[place] != partition:
                staying[place] = partition
                states.append((*staying, *passing[:at_once]))
        ends = range(at_once + 1, size + 1)
        states += [(*staying, *passing[end - at_once : end]) for end in ends]
        passing.reverse()
    return PartitionOrder("blocks", 2 * size, slots, tuple(states))


class RankSchedule(BucketSchedule):
    """The steps of one of several ranks; ``BucketSchedule`` has those of a single rank.

    All ranks have equally many steps. Every bucket is trained once per epoch for any number of
    ranks.

    ranks, rank  the number of ranks, and this rank
    partitions   of all ranks, a multiple of 2 * ranks
    made         returns the order in which a number of partitions meet in the buffer
    laps         how often all blocks meet in an epoch
    whole        whether memory holds both blocks
    """

    def __init__(
        self,
        ranks: int,
        rank: int,
        partitions: int,
        made: Callable[[int], PartitionOrder],
        *,
        laps: int = 1,
        seed: int = 0,
    ) -> None:
        assert partitions % (2 * ranks) == 0
        self.laps = laps
        self.ranks, self.rank, self.partitions = ranks, rank, partitions
        super().__init__(made(partitions // ranks), seed=seed)
        self.whole = len(self.order.states) == 1
        self.rounds = tournament(ranks)
        between = self.order
        if not self.whole:
            # One slot more than on a single rank, for partitions that are sent or that pass.
            self.slots += 1
            between = order_between_blocks(partitions // ranks // 2, self.slots)
        self._meet = len(between.states) == 1
        orders = [self.order, *[between] * (len(self.rounds) - 1)]
        self._within = [BucketSchedule(order, relabel=False) for order in orders]
        self._ends = list(accumulate(len(order.states) for order in orders))
        # The draws of each lap and each round; each depends on the one before.
        self._laps: list[tuple[State, ...]] = []
        self._rounds: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        """The number of states of an epoch."""
        return self.laps * self._ends[-1]

    @cached_property
    def hiding(self) -> float:
        """The least number of buckets that are trained while a partition is exchanged.

        It is the least of some epochs, since each epoch draws which partitions meet; with many
        partitions nearly every epoch has the worst case. Swaps during which nothing is trained do
        not count. While partitions move between ranks, nothing is trained.
        """
        epochs = min(_MOST_EPOCHS, max(1, _LOOKED_AT // self.partitions))
        return min(
            (
                sum(1 / share.of for share in step.during) / len(step.evict)
                for epoch in range(epochs)
                for step in self.scheduled(epoch)
                if step.evict and step.during
            ),
            default=math.inf,
        )

    def holders(self, epoch: int, number: int) -> tuple[int, ...]:
        """Return the rank of each partition in a state of an epoch."""
        lap, state = divmod(number, self._ends[-1])
        return self._holders(epoch * self.laps + lap, bisect_right(self._ends, state))

    def _holders(self, lap: int, turn: int) -> tuple[int, ...]:
        found, blocks = [-1] * self.partitions, self._drawn(lap)
        for rank, pair in enumerate(self.rounds[turn]):
            for block in pair:
                for partition in blocks[block]:
                    found[partition] = rank
        return tuple(found)

    def scheduled(self, epoch: int) -> Iterator[ScheduledState]:
        """Yield the steps of ``epoch``."""
        turns, state = len(self.rounds), 0
        for number in range(self.laps * turns):
            lap, turn = divmod(number, turns)
            blocks = self._drawn(epoch * self.laps + lap)
            pair = [blocks[block] for block in self.rounds[turn][self.rank]]
            here = self._placed(epoch * self.laps * turns + number)
            block_of = {p: i for i, of in enumerate(pair) for p in of}
            # In the same round of each epoch, train other parts of the edges.
            part = (lap + epoch) % self.laps, self.laps
            within = (turn + epoch) % turns, turns
            place = _Round(block_of, part, within, self._meet, first=turn == 0)
            for step in self._within[turn].scheduled(epoch):
                buffer, evict, load = (
                    tuple(here[p] for p in some) for some in (step.buffer, step.evict, step.load)
                )
                before, during = (
                    tuple(place.shares(shares, here)) for shares in (step.before, step.during)
                )
                yield ScheduledState(state, buffer, evict, load, before, during)
                state += 1

    def _placed(self, number: int) -> tuple[int, ...]:
        """Return this rank's partitions in a round, by their positions in the order."""
        while len(self._rounds) <= number:
            self._rounds.append(self._draw_here(len(self._rounds)))
        return self._rounds[number]

    def _draw_here(self, number: int) -> tuple[int, ...]:
        lap, turn = divmod(number, len(self.rounds))
        blocks = [self._drawn(lap)[block] for block in self.rounds[turn][self.rank]]
        keys = self._keys(_WITHIN, number, 2 * len(blocks[0]))
        here = [partition for block in blocks for partition in block]
        drawn = [here[i] for i in np.argsort(keys, kind="stable")]
        if self.whole or number == 0:
            return tuple(drawn)
        held = self._held_after(number - 1)
        drawn.sort(key=lambda partition: partition not in held)  # those in memory first
        if turn:
            # The block with more partitions in memory stays.
            counts = [len(held.intersection(block)) for block in blocks]
            stays = blocks[counts[1] > counts[0]]
            drawn.sort(key=lambda partition: partition not in stays)
            return tuple(drawn)
        first = self.order.states[0]
        places = [*first, *(place for place in range(len(drawn)) if place not in first)]
        return tuple(partition for _, partition in sorted(zip(places, drawn, strict=True)))

    def _held_after(self, number: int) -> set[int]:
        """Return the partitions in the buffer after a round and the moves that follow it."""
        lap, turn = divmod(number, len(self.rounds))
        here, order = self._placed(number), self._within[turn].order
        held = {here[place] for place in order.states[-1]}
        following = divmod(number + 1, len(self.rounds))
        for leaving, _, coming, _ in moves_of(
            self.rank, self._holders(lap, turn), self._holders(*following)
        ):
            if leaving in held:
                held = held - {leaving} | {coming}
        return held

    def _drawn(self, lap: int) -> tuple[State, ...]:
        """Return the partitions of every block in a lap."""
        while len(self._laps) <= lap:
            self._laps.append(self._draw_blocks(len(self._laps)))
        return self._laps[lap]

    def _draw_blocks(self, lap: int) -> tuple[State, ...]:
        keys = self._keys(_BLOCKS, lap, self.partitions)
        drawn = [int(p) for p in np.argsort(keys, kind="stable")]
        size = self.partitions // (2 * self.ranks)
        if lap == 0:
            return tuple(tuple(drawn[i : i + size]) for i in range(0, len(drawn), size))
        holders = self._holders(lap - 1, len(self.rounds) - 1)
        blocks: list[State] = [()] * (2 * self.ranks)
        for rank, pair in enumerate(self.rounds[0]):
            mine = [partition for partition in drawn if holders[partition] == rank]
            blocks[pair[0]], blocks[pair[1]] = tuple(mine[:size]), tuple(mine[size:])
        return tuple(blocks)

    def _keys(self, what: int, number: int, count: int) -> Array:
        first = (what << 60) + (number << 20)
        return random_keys(self.seed, Stream.EMBED_SHUFFLE, first, count)


@dataclass(frozen=True)
class _Round:
    """One round on one rank.

    block_of  the block of each partition, one of two
    lap       the part of all edges that this lap trains, and the number of parts
    within    the part of the lap's edges within a block that this round trains, and the number
    meet      whether the partitions of a block meet in every round; otherwise edges between them
              are trained in the first round
    first     whether this is the first round
    """

    block_of: dict[int, int]
    lap: tuple[int, int]
    within: tuple[int, int]
    meet: bool
    first: bool

    def shares(self, given: Sequence[Share], here: Sequence[int]) -> Iterator[Share]:
        """Yield the parts of shares to train; their buckets' numbers are positions in ``here``."""
        for of in given:
            i, j = bucket = here[of.bucket[0]], here[of.bucket[1]]
            part, parts = self.lap
            if self.block_of[i] == self.block_of[j]:
                if i == j or self.meet:
                    part, parts = part * self.within[1] + self.within[0], parts * self.within[1]
                elif not self.first:
                    continue
            yield Share(bucket, part * of.of + of.part, parts * of.of)
