"""Every edge is trained once an epoch, on one rank, whatever their number."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.partition.order import order
from penstock.workers.embed.layout.buckets import EdgeBuckets
from penstock.workers.embed.ranks.rounds import RankSchedule, laps_in_memory
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule


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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_every_edge_is_trained_once(case, epoch):
    partitions = case[1]
    size = 97  # edges of a bucket, which no number of parts divides
    trained = np.zeros((partitions, partitions, size), int)
    for schedule in schedules(*case):
        for step in schedule.scheduled(epoch):
            for share in (*step.before, *step.during):
                i, j = share.bucket
                begin, end = (size * (share.part + k) // share.of for k in (0, 1))
                trained[i, j, begin:end] += 1
    assert (trained == 1).all()


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


@pytest.mark.parametrize("case", [(2, 16, "prefetch"), (2, 12, "beta"), (3, 36, "prefetch", 2)])
def test_each_swap_hides_behind_as_many_edges_as_is_said(case):
    partitions, size = case[1], 3600  # edges of each bucket
    none, offsets = np.empty(0, np.int32), size * np.arange(partitions**2 + 1)
    buckets = EdgeBuckets(none, none, None, offsets)
    for schedule in schedules(*case):
        fewest = min(
            buckets.count(step.during) / len(step.evict)
            for epoch in range(512 // partitions)
            for step in schedule.scheduled(epoch)
            if step.evict
        )
        assert fewest == pytest.approx(schedule.hiding * size, rel=0.01)


def test_a_rank_that_is_alone_hides_as_much_as_one_without_rounds():
    (schedule,) = schedules(1, 12, "prefetch")
    alone = BucketSchedule(order("prefetch", 12), spread=True)
    assert schedule.hiding == pytest.approx(alone.hiding)
    assert schedules(2, 32, None)[0].hiding == math.inf


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


def test_other_partitions_meet_in_every_epoch():
    schedule = RankSchedule(2, 0, 32, None, seed=1)
    together = np.zeros((32, 32), int)
    for epoch in range(40):
        for step in schedule.scheduled(epoch):
            at = np.array(step.buffer)
            together[np.ix_(at, at)] += 1
    others = together[~np.eye(32, dtype=bool)]
    assert others.min() > 0
    assert others.std() < 0.3 * others.mean()


@pytest.mark.parametrize(
    ("nodes", "edges", "ranks", "laps"),
    [
        (14541, 270490, 2, 4),  # FB15k-237
        (14541, 270490, 8, 1),  # rounds of fewer than two batches mix nothing more
        (41 * 10**6, 1.4 * 10**9, 8, 8),
        (86 * 10**6, 338 * 10**6, 4, 1),  # so few edges a node that moving would cost much
        (300, 2000, 2, 1),
    ],
)
def test_laps_are_cheap(nodes, edges, ranks, laps):
    assert laps_in_memory(nodes, int(edges), ranks) == laps
