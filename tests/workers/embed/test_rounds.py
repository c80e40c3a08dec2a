"""Every edge is trained once an epoch, on one rank, whatever their number."""

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.partition.order import order
from penstock.workers.embed.layout.buckets import EdgeBuckets
from penstock.workers.embed.ranks.rounds import RankSchedule, order_in_memory


def schedules(ranks, partitions, name, laps=1):
    given = {"laps": laps, "seed": 3}
    made = order_in_memory if name is None else partial(order, name)
    return [RankSchedule(ranks, rank, partitions, made, **given) for rank in range(ranks)]


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_every_edge_is_trained_once_by_ranks_that_share_no_partition(data):
    """Of buckets of any size, empty ones too, which their parts do not divide."""
    ranks = data.draw(st.integers(2, 6))
    partitions = 2 * ranks * data.draw(st.integers(1, 3))
    name = data.draw(st.sampled_from([None, "prefetch", "beta"]))
    laps, epoch = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 20))
    sizes = np.array([0, 1, 2, 7, 97])[np.arange(partitions**2) % 5]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    none = np.empty(0, np.int32)
    buckets = EdgeBuckets((none, none, None, None), offsets[None])
    trained = np.zeros(offsets[-1], int)
    every = schedules(ranks, partitions, name, laps)
    assert {len(schedule) for schedule in every} == {len(every[0])}
    for number, steps in enumerate(zip(*(one.scheduled(epoch) for one in every), strict=True)):
        assert {step.number for step in steps} == {number}
        held = [p for step in steps for p in step.buffer]
        assert len(set(held)) == len(held)
        holders = every[0].holders(epoch, number)
        assert np.bincount(holders).tolist() == [partitions // ranks] * ranks
        for rank, step in enumerate(steps):
            assert holders == every[rank].holders(epoch, number)
            assert all(holders[p] == rank for p in (*step.buffer, *step.load))
            kept = {*step.buffer} - {*step.evict}
            assert all({*share.bucket} <= kept for share in step.during)
            for share in (*step.before, *step.during):
                assert {*share.bucket} <= {*step.buffer}
                for begin, end in buckets.runs(share):
                    trained[begin:end] += 1
    assert number == len(every[0]) - 1
    assert (trained == 1).all()
