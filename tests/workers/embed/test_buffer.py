"""A buffer of partitions: every bucket once an epoch, nothing lost, the same without prefetch."""

import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.partition.order import order
from penstock.workers.embed import buffer as module
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule

ORDERS = [("prefetch", 3), ("beta", 3), ("beta", 4), ("legend", 3)]


def schedules(draw):
    name, capacity = draw(st.sampled_from(ORDERS))
    n = draw(st.integers(1, 17))
    return BucketSchedule(
        order(name, n, capacity), seed=draw(st.integers(0, 99)), relabel=draw(st.booleans()),
        spread=draw(st.booleans()),
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_bucket_is_trained_once_an_epoch(data):
    schedule, epoch = schedules(data.draw), data.draw(st.integers(0, 4))
    n = schedule.order.partitions
    parts, steps = {}, list(schedule.scheduled(epoch))
    assert len(steps) == len(schedule)
    for step in steps:
        for share in step.before + step.during:
            assert set(share.bucket) <= set(step.buffer)
            assert share.part not in parts.setdefault((share.bucket, share.of), set())
            parts[share.bucket, share.of].add(share.part)
        assert all(not set(share.bucket).isdisjoint(step.evict) for share in step.before)
        assert all(set(share.bucket).isdisjoint(step.evict) for share in step.during)
        assert len(set(step.buffer)) == len(step.buffer)
    assert sorted(bucket for bucket, _ in parts) == [(i, j) for i in range(n) for j in range(n)]
    assert all(len(found) == of for (_, of), found in parts.items())
    for one, two in pairwise(steps):
        assert set(one.buffer) - set(one.evict) | set(one.load) == set(two.buffer)
    assert steps[-1].evict == ()


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_labels_are_drawn_anew_and_nothing_moves_between_epochs(data):
    name, capacity = data.draw(st.sampled_from(ORDERS))
    n = data.draw(st.integers(5, 17))
    schedule = BucketSchedule(order(name, n, capacity), seed=data.draw(st.integers(0, 99)))
    for epoch in range(4):
        assert sorted(schedule.labels(epoch)) == list(range(n))
        assert set(schedule.states(epoch)[-1]) == set(schedule.states(epoch + 1)[0])
    assert len({schedule.labels(epoch) for epoch in range(6)}) > 1
    # Whoever resumes asks for a later epoch first.
    again = BucketSchedule(order(name, n, capacity), seed=schedule.seed)
    assert again.labels(4) == schedule.labels(4)


def test_every_partition_is_as_likely_under_a_label():
    counts = np.zeros((6, 6))
    for seed in range(1200):
        schedule = BucketSchedule(order("prefetch", 6), seed=seed)
        for label, partition in enumerate(schedule.labels(2)):
            counts[label, partition] += 1
    assert ((counts - 200) ** 2 / 200).sum() < 25 + 4 * 50**0.5 + 10


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(
    ("name", "capacity", "partitions"),
    [("prefetch", 3, 7), ("prefetch", 3, 2), ("prefetch", 3, 1), ("beta", 4, 6), ("cover", 4, 16)],
)
def test_what_is_in_memory_is_what_was_trained(small, prefetch, name, capacity, partitions):
    """The same training run in plain arrays, all of them in memory."""
    one = small(name=name, capacity=capacity, partitions=partitions, prefetch=prefetch, states=2)
    whole = np.empty((partitions, 3, one.geometry.rows, 16), np.float32)
    for partition in range(partitions):
        one.initial(partition, whole[partition])
    for epoch in range(3):
        one.epoch(epoch)
        for step in one.schedule.scheduled(epoch):
            for share in step.before + step.during:
                for partition in set(share.bucket):
                    array = whole[partition]
                    array *= np.float32(1.25)
                    array += np.float32(share.part + sum(share.bucket) % 3)
                    array %= np.float32(97)
    one.buffer.flush()
    np.testing.assert_array_equal(one.contents(), whole)
    assert (one.buffer.traffic.swaps > 0) == (partitions > capacity)


def test_a_swap_runs_while_what_does_not_need_it_trains(small, monkeypatch):
    """The disk is stopped in the middle of every swap until training has gone on."""
    one = small(partitions=7)
    one.epoch(0)
    trained, met = threading.Event(), []
    real = module.PartitionBuffer.swap

    def swap(buffer, pairs):
        trained.clear()
        real(buffer, pairs)

    pwrite = one.table.write_bytes

    def write_bytes(data, offset):
        met.append(trained.wait(timeout=20))
        pwrite(data, offset)

    monkeypatch.setattr(module.PartitionBuffer, "swap", swap)
    monkeypatch.setattr(one.table, "write_bytes", write_bytes)
    for state in one.buffer.visits(1):
        for phase in state:
            one.train(phase)
            trained.set()
        trained.set()
    assert met
    assert all(met)


@pytest.mark.parametrize("prefetch", [True, False])
def test_an_error_of_a_swap_ends_the_training(small, monkeypatch, prefetch):
    one = small(partitions=7, prefetch=prefetch)
    one.epoch(0)

    def broken(out, offset):
        raise PenstockError("cannot read the table at offset 7")

    monkeypatch.setattr(one.table, "read_bytes", broken)
    with pytest.raises(PenstockError):
        one.epoch(1)
    one.buffer.close()


def test_partitions_that_left_with_what_is_no_number_are_told(small):
    """They are on the disk by then, and may not be read again before a checkpoint."""
    one = small(partitions=4)
    states = one.buffer.visits(0)
    visit = next(states)
    assert one.buffer.finite()
    one.buffer.slot(visit.swaps[0][0])[1][3, 2] = np.nan
    next(states)
    assert visit.swaps[0][0] not in one.buffer.first_rows
    assert not one.buffer.finite()
    assert one.buffer.finite()  # which it was told
    one.buffer.slot(next(iter(one.buffer.first_rows)))[0][0, 0] = np.inf
    assert not one.buffer.finite()
