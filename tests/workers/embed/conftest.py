"""Small tables, a buffer that is trained by adding to it, and a small graph."""

import numpy as np
import pytest

from penstock.partition.order import order
from penstock.workers.embed.buffer import PartitionBuffer
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.storage import Geometry
from penstock.workers.embed.storage.direct import new_slot, open_table
from penstock.workers.embed.storage.versions import Checkpoints


class Small:
    """A table of a folder, and all that trains it; ``train`` is a training run of a kind.

    A share changes the rows of both of its partitions in a way that depends on their values, the
    share and the order, so that nothing can be left out, done twice or swapped without a trace.
    """

    def __init__(self, folder, *, partitions=7, name="prefetch", capacity=None, **options):
        self.folder = folder
        self.layout = NodeLayout.ranges(500, partitions)
        self.geometry = Geometry.of(
            partitions, max(self.layout.sizes), 16, options.pop("states", 1)
        )
        schedule = {key: options.pop(key) for key in ("relabel",) if key in options}
        self.checkpoints = Checkpoints(folder)
        last = self.checkpoints.load("last") if self.checkpoints.has("last") else None
        versions = self.checkpoints.versions(last)
        threads = options.pop("threads", 3)
        self.table = open_table(folder, self.geometry, *versions, threads=threads, device=False)
        self.schedule = BucketSchedule(order(name, partitions, capacity), seed=1, **schedule)
        self.buffer = PartitionBuffer(
            self.table,
            self.schedule,
            sizes=self.layout.sizes,
            initial=self.initial,
            **options,
        )

    @staticmethod
    def initial(partition, slot):
        for number, array in enumerate(slot):
            array[:] = partition + number / 8

    def train(self, phase):
        for share in phase.shares:
            for partition in set(share.bucket):
                assert partition in phase.partitions
                for array in self.buffer.slot(partition):
                    array *= np.float32(1.25)
                    array += np.float32(share.part + sum(share.bucket) % 3)
                    array %= np.float32(97)

    def epoch(self, epoch, start=0):
        for state in self.buffer.visits(epoch, start=start):
            for phase in state:
                self.train(phase)

    def save(self, about, **options):
        self.buffer.flush()
        self.table.publish()
        newest, number = self.table.newest, self.table.number + 1
        self.checkpoints.save(
            self.geometry, newest, number, {"rates": np.arange(3.0)}, about, **options
        )
        self.table.saved()

    def contents(self, versions=None):
        """Return all partitions as they are on disk, values and state side by side."""
        table = self.table
        if versions is not None:
            table = open_table(self.folder, self.geometry, versions, device=False)
        found = []
        for partition in range(self.geometry.partitions):
            slot = new_slot(self.geometry)
            table.read(partition, slot).result()
            found.append(np.concatenate(slot, axis=1))
        if versions is not None:
            table.close()
        return np.stack(found)

    def close(self):
        self.buffer.close()
        self.table.close()


@pytest.fixture
def small(tmp_path):
    """Return what makes a ``Small`` in a folder; all are closed at the end."""
    made = []

    def make(folder="t", **options):
        (tmp_path / folder).mkdir(exist_ok=True)
        made.append(Small(tmp_path / folder, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def graph(tmp_path_factory):
    """A small knowledge graph with held-out triples; tests only read it."""
    from penstock import Graph, generate

    path = tmp_path_factory.mktemp("kg") / "g"
    generate("kg", path, entities=300, triples=3000, relations=5, quiet=True)
    return Graph.open(path)
