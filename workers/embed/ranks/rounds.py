"""The schedule of several ranks: rounds of two blocks, and the states of each rank's buffer.

Partitions are grouped into two blocks a rank. In a round every rank has two blocks, and trains all
edges from one to the other; over the rounds of an epoch all blocks meet (partition/tournament.py).

The edges of a round are no sample of the graph: a node meets but those of two blocks. Where memory
holds both blocks and moving is cheap, an epoch is therefore several laps: in each all blocks meet,
to train another part of every bucket. Edges within a block are divided equally among all rounds, so
that they are mixed with as many others as there are. (On FB15k-237 with two ranks, ten epochs long,
one lap an epoch cost 1.5 % of the MRR, and four 1.0 %.) What a rank has at the end of a lap is
divided anew into two blocks, and nothing is moved for that.

Where memory holds a few partitions, those that are there at the end of a round are those with which
the next one begins. Edges within a block are trained in the first round of an epoch, in the order
of one rank. In the others most of one block stays in memory while the other one passes, and reads
and writes are half as many as in an order in which training can hide them.

Negatives come from the two blocks that are there: over the epochs they are a sample of the whole
graph all the same.
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


def moves_of(
    rank: int, before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield what leaves a rank and for which, and what comes in its place and from which.

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

    Some of the first block stay while those of the second pass, to the end and back. Two of them
    are in memory, so that one trains while the other is exchanged.
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
    laps         of an epoch: how often all blocks meet
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
        super().__init__(made(partitions // ranks), seed=seed, spread=True)
        self.whole = len(self.order.states) == 1
        self.rounds = tournament(ranks)
        between = self.order
        if not self.whole:
            # One more than the order of one rank: a rank has a slot for partitions on their way.
            self.slots += 1
            between = order_between_blocks(partitions // ranks // 2, self.slots)
        self._meet = len(between.states) == 1
        orders = [self.order, *[between] * (len(self.rounds) - 1)]
        self._within = [BucketSchedule(order, relabel=False, spread=True) for order in orders]
        self._ends = list(accumulate(len(order.states) for order in orders))
        # What was drawn for each lap and each round, of which every one depends on the one before.
        self._laps: list[tuple[State, ...]] = []
        self._rounds: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        """How many states an epoch has."""
        return self.laps * self._ends[-1]

    @cached_property
    def hiding(self) -> float:
        """The least number of buckets that are trained while a partition is exchanged.

        In the rounds in which training hides that; and of some epochs, as which partitions meet is
        drawn in each of them; of many partitions, the worst comes in nearly every one. While
        partitions go from one rank to another, nothing is trained.
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
        """Return which rank has each partition in a state of an epoch."""
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
            # Other parts of the edges in the same round of each epoch.
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
        """Return this rank's partitions in a round, in the places of its order."""
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
        drawn.sort(key=lambda partition: partition not in held)  # these first
        if turn:
            # The block of which more is there stays.
            counts = [len(held.intersection(block)) for block in blocks]
            stays = blocks[counts[1] > counts[0]]
            drawn.sort(key=lambda partition: partition not in stays)
            return tuple(drawn)
        first = self.order.states[0]
        places = [*first, *(place for place in range(len(drawn)) if place not in first)]
        return tuple(partition for _, partition in sorted(zip(places, drawn, strict=True)))

    def _held_after(self, number: int) -> set[int]:
        """Return what the buffer holds after a round, partitions that came in place of others."""
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

    block_of  which of its two blocks a partition is in
    lap       which part of all edges is trained in this lap, and of how many
    within    of these, which part of the edges within a block in this round, and of how many
    meet      whether the partitions of a block meet in every round; otherwise edges between them
              are trained in the first one
    """

    block_of: dict[int, int]
    lap: tuple[int, int]
    within: tuple[int, int]
    meet: bool
    first: bool

    def shares(self, given: Sequence[Share], here: Sequence[int]) -> Iterator[Share]:
        """Yield what of shares is trained, whose buckets name places in ``here``."""
        for of in given:
            i, j = bucket = here[of.bucket[0]], here[of.bucket[1]]
            part, parts = self.lap
            if self.block_of[i] == self.block_of[j]:
                if i == j or self.meet:
                    part, parts = part * self.within[1] + self.within[0], parts * self.within[1]
                elif not self.first:
                    continue
            yield Share(bucket, part * of.of + of.part, parts * of.of)
