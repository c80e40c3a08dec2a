"""A buffer of partitions: every bucket once an epoch, nothing lost, the same without prefetch."""

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.workers.embed.storage.direct import OpenFile


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(
    ("name", "capacity", "partitions"),
    [("prefetch", 3, 7), ("prefetch", 3, 2), ("prefetch", 3, 1), ("beta", 4, 6), ("cover", 4, 16)],
)
def test_what_is_in_memory_is_what_was_trained(small, prefetch, name, capacity, partitions):
    """The same training run in plain arrays, all of them in memory."""
    one = small(name=name, capacity=capacity, partitions=partitions, prefetch=prefetch, states=2)
    whole = np.empty((partitions, one.geometry.rows, 3 * 16), np.float32)
    for partition in range(partitions):
        one.initial(partition, (whole[partition][:, :16], whole[partition][:, 16:]))
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


@pytest.mark.parametrize("prefetch", [True, False])
def test_an_error_of_a_swap_ends_the_training(small, monkeypatch, prefetch):
    one = small(partitions=7, prefetch=prefetch)
    one.epoch(0)

    def broken(file, out, offset):
        raise PenstockError("cannot read the table at offset 7")

    monkeypatch.setattr(OpenFile, "read_bytes", broken)
    with pytest.raises(PenstockError):
        one.epoch(1)
    one.buffer.close()


def test_partitions_that_left_with_values_that_are_not_finite_are_reported(small):
    """They are on the disk by then, and may not be read again before a checkpoint."""
    one = small(partitions=4)
    states = one.buffer.visits(0)
    visit = next(states)
    assert one.buffer.finite()
    one.buffer.slot(visit.swaps[0][0])[1][3, 2] = np.nan
    next(states)
    assert visit.swaps[0][0] not in one.buffer.first_rows
    assert not one.buffer.finite()
    assert one.buffer.finite()  # reported once
    one.buffer.slot(next(iter(one.buffer.first_rows)))[0][0, 0] = np.inf
    assert not one.buffer.finite()
