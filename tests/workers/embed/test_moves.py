"""Partitions move whole to their next rank, in memory and from disk to disk."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from penstock.partition.order import order
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.ranks.moves import Moves
from penstock.workers.embed.ranks.rounds import RankSchedule, order_in_memory
from penstock.workers.embed.storage import Geometry
from penstock.workers.embed.storage.direct import new_slot, open_table

SIZE = 20


def initial(partition, slot):
    for number, array in enumerate(slot):
        array[:] = np.arange(array.size).reshape(array.shape) * 0.5 + 1000 * partition + number


class Holder:
    """One rank's table and buffer, and what moves its partitions."""

    def __init__(self, comm, folder, partitions, name, states):
        self.schedule = RankSchedule(
            comm.size,
            comm.rank,
            partitions,
            order_in_memory if name is None else partial(order, name),
            seed=1,
        )
        geometry = Geometry.of(partitions, SIZE, 16, states)
        scratch = Path(tempfile.mkdtemp(dir=folder))
        self.table = open_table(folder, geometry, scratch=scratch, device=False)
        self.buffer = PartitionBuffer(
            self.table,
            self.schedule,
            sizes=[SIZE] * partitions,
            initial=initial,
            before_visit=lambda epoch, number: self.moves.to(self.schedule.holders(epoch, number)),
        )
        whole = name is None
        holders = self.schedule.holders(0, 0)
        self.moves = Moves(comm, self.buffer, holders, whole=whole)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("states", [0, 1, 2])
@pytest.mark.parametrize("name", [None, "prefetch"])
def test_values_and_states_move_together(on_threads, tmp_path, ranks, states, name):
    """A partition counts its visits, on whatever rank; no visit is lost, none counts twice."""
    partitions, epochs = 12, 2

    def train(comm):
        one = Holder(comm, tmp_path, partitions, name, states)
        visits = np.zeros(partitions, int)
        try:
            for epoch in range(epochs):
                for visit in one.buffer.visits(epoch):
                    for partition in visit.before.partitions:
                        visits[partition] += 1
                        for array in one.buffer.slot(partition):
                            array += 1
            one.buffer.flush()
            found = {}
            for partition in one.moves.held:
                slot = new_slot(one.table.geometry)
                one.table.read(partition, slot).result()
                found[partition] = slot
            return visits, found
        finally:
            one.buffer.close()
            one.table.close()

    every = on_threads(ranks, train)
    visits = sum(visits for visits, _ in every)
    held = [partition for _, found in every for partition in found]
    assert sorted(held) == list(range(partitions))
    for _, found in every:
        for partition, slot in found.items():
            wanted = [np.zeros_like(array) for array in slot]
            initial(partition, wanted)
            for array, begun in zip(slot, wanted, strict=True):
                np.testing.assert_array_equal(array, begun + visits[partition])
