"""Rounds in which every two blocks meet once, and moves in which ranks need room for one."""

import itertools

import numpy as np
import pytest

from penstock.partition.tournament import moves, tournament


@pytest.mark.parametrize("ranks", [*range(1, 12), 20, 40])
def test_every_two_blocks_meet_once(ranks):
    rounds = tournament(ranks)
    blocks = range(2 * ranks)
    assert len(rounds) == 2 * ranks - 1
    for pairs in rounds:
        assert len(pairs) == ranks
        assert sorted(itertools.chain(*pairs)) == list(blocks)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert sorted(map(sorted, met)) == [list(pair) for pair in itertools.combinations(blocks, 2)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_in_a_step_a_rank_sends_one_and_receives_one(ranks, seed):
    rng = np.random.default_rng(seed)
    each = 6
    before = rng.permutation(np.repeat(np.arange(ranks), each)).tolist()
    after = rng.permutation(np.repeat(np.arange(ranks), each)).tolist()
    at = list(before)
    for step in moves(before, after):
        senders = [here for _, here, _ in step]
        receivers = [there for _, _, there in step]
        assert sorted(senders) == sorted(receivers)
        assert len(set(senders)) == len(senders)
        for thing, here, there in step:
            assert at[thing] == here != there
            at[thing] = there
    assert at == after
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    assert sum(map(len, moves(before, after))) == moved


def test_a_round_moves_a_block_in_as_many_steps_as_it_has_partitions():
    ranks, pieces = 5, 3
    rounds = tournament(ranks)

    def holders(pairs):
        rank_of = {block: rank for rank, pair in enumerate(pairs) for block in pair}
        return [rank_of[partition // pieces] for partition in range(2 * ranks * pieces)]

    for before, after in itertools.pairwise(rounds):
        assert len(moves(holders(before), holders(after))) == pieces
