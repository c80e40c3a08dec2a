"""Every edge is trained once an epoch, on one rank, whatever their number."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.partition.order import order
from penstock.workers.embed.layout.buckets import EdgeBuckets
from penstock.workers.embed.ranks.rounds import RankSchedule


def schedules(ranks, partitions, name, laps=1):
    given = {"laps": laps, "seed": 3}
    made = None if name is None else partial(order, name)
    return [RankSchedule(ranks, rank, partitions, made, **given) for rank in range(ranks)]


CASES = [
    (2, 4, None),
    (2, 32, None),
    (2, 4, "prefetch"),
    (2, 8, "prefetch"),
    (2, 12, "beta"),
    (2, 8, "cover"),
    (3, 12, "prefetch"),
    (3, 36, "prefetch"),
    (5, 30, None),
    (8, 32, "prefetch"),
    (2, 16, None, 4),
    (3, 12, "prefetch", 3),
]


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_every_edge_is_trained_once_whatever_ranks_partitions_and_laps(data):
    """Of buckets of any size, empty ones too, which their parts do not divide."""
    ranks = data.draw(st.integers(2, 6))
    partitions = 2 * ranks * data.draw(st.integers(1, 3))
    name = data.draw(st.sampled_from([None, "prefetch", "beta"]))
    laps, epoch = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 20))
    sizes = np.array([0, 1, 2, 7, 97])[np.arange(partitions**2) % 5]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    none = np.empty(0, np.int32)
    buckets = EdgeBuckets(none, none, None, offsets)
    trained, numbers = np.zeros(offsets[-1], int), []
    for schedule in schedules(ranks, partitions, name, laps):
        for step in schedule.scheduled(epoch):
            numbers.append(step.number)
            for share in (*step.before, *step.during):
                begin, end = buckets.run(share)
                trained[begin:end] += 1
    assert (trained == 1).all()
    assert numbers == [*range(len(schedule))] * ranks


@pytest.mark.parametrize("case", CASES)
def test_ranks_are_in_step_and_share_nothing(case):
    ranks, partitions = case[:2]
    every = schedules(*case)
    assert len({len(schedule) for schedule in every}) == 1
    assert [step.number for step in every[0].scheduled(1)] == list(range(len(every[0])))
    for epoch in (0, 2):
        for steps in zip(*(schedule.scheduled(epoch) for schedule in every), strict=True):
            assert len({step.number for step in steps}) == 1
            number = steps[0].number
            held = [p for step in steps for p in step.buffer]
            assert len(set(held)) == len(held)
            holders = every[0].holders(epoch, number)
            for rank, step in enumerate(steps):
                assert holders == every[rank].holders(epoch, number)
                assert np.bincount(holders).tolist() == [partitions // ranks] * ranks
                assert all(holders[p] == rank for p in (*step.buffer, *step.load))
                shares = (*step.before, *step.during)
                assert all({*share.bucket} <= {*step.buffer} for share in shares)
                kept = {*step.buffer} - {*step.evict}
                assert all({*share.bucket} <= kept for share in step.during)
