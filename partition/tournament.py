"""The rounds in which blocks of nodes meet, two per rank at a time, and how blocks move.

    rounds = tournament(4)            # 4 ranks, 8 blocks, 7 rounds
    for pairs in rounds:
        train(pairs[rank])            # two blocks, which no other rank has
        ...                           # one of the two moves to another rank, another one arrives

Every two blocks meet in one round, so that an edge between any two nodes can be trained on some
rank. The rounds are those of the circle method: one block is fixed, the others rotate. Two
consecutive rounds divide the ranks into rings; along each every rank keeps one block and passes the
other one on, so that always half of all blocks move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Pair = tuple[int, int]
Round = tuple[Pair, ...]


def tournament(ranks: int) -> tuple[Round, ...]:
    """Return the two blocks of every rank in every round: 2 * ranks - 1 rounds of 2 * ranks blocks.

    The first of a pair is the one that the rank had in the previous round.
    """
    last = 2 * ranks - 1
    rounds: list[Round] = []
    for turn in range(last):
        met = [(last, turn)]
        met += [((turn + i) % last, (turn - i) % last) for i in range(1, ranks)]
        rounds.append(_placed(met, rounds[-1]) if rounds else tuple(met))
    return tuple(rounds)


def _placed(pairs: Sequence[Pair], before: Round) -> Round:
    """Return pairs in the order of ranks: each rank keeps one of its blocks."""
    partner = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    rank_of = {block: rank for rank, pair in enumerate(before) for block in pair}
    placed: dict[int, Pair] = {}
    for first in range(len(before)):
        rank, kept = first, before[first][1]
        while rank not in placed:
            come = partner[kept]
            placed[rank] = kept, come
            rank = rank_of[come]
            # The rank that ``come`` leaves keeps its other block.
            kept = before[rank][1] if before[rank][0] == come else before[rank][0]
    return tuple(placed[rank] for rank in range(len(before)))


Move = tuple[int, int, int]
"""What moves, from which rank, to which."""


def moves(before: Sequence[int], after: Sequence[int]) -> list[list[Move]]:
    """Return the steps that move things from their current ranks to their new ones.

    In a step each rank sends one and receives one, or neither: it needs space for only one more.

    Parameters
    ----------
    before, after
        The rank of each thing. Every rank has the same number before and after.
    """
    leaving: dict[int, list[Move]] = defaultdict(list)
    for thing, (here, there) in enumerate(zip(before, after, strict=True)):
        if here != there:
            leaving[here].append((thing, here, there))
    for found in leaving.values():
        found.reverse()  # the first one is taken first
    steps: list[list[Move]] = []
    busy: list[set[int]] = []
    for start in sorted(leaving):
        while leaving[start]:
            ring = _ring(leaving, start)
            ranks = {here for _, here, _ in ring}
            at = next((i for i, taken in enumerate(busy) if not taken & ranks), len(steps))
            if at == len(steps):
                steps.append([])
                busy.append(set())
            steps[at] += ring
            busy[at] |= ranks
    return steps


def _ring(leaving: dict[int, list[Move]], start: int) -> list[Move]:
    """Remove moves from ``leaving`` that form a cycle of distinct ranks.

    As many arrive at each rank as leave it, so any walk ends at its start.
    """
    way: list[Move] = []
    passed = {start: 0}
    rank = start
    while True:
        move = leaving[rank][-1]
        way.append(move)
        rank = move[2]
        if rank in passed:
            break
        passed[rank] = len(way)
    ring = way[passed[rank] :]
    for move in ring:
        leaving[move[1]].pop()
    return ring
