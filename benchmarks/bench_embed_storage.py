"""The rates of an embedding table's requests, compared with dd, and whether its swaps hide.

    python -P benchmarks/bench_embed_storage.py [--quick] [--folder FOLDER]

In turns in the same folder, with O_DIRECT: the table's requests and dd, and with a GPU the table's
requests from its memory. Then epochs of buffer states with and without prefetch, which must leave
the same bytes on the disk. The training is simulated by NumPy on the rows of the phase, on one
core: the buckets that are at least trained during a swap take 1.5 times a swap, so theorem 3 holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, gpus, main
from storage_bandwidth import measure, measure_dd

from penstock.partition.order import order
from penstock.workers.embed.buffer import PartitionBuffer, Traffic
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.storage import Geometry
from penstock.workers.embed.storage.direct import open_table

PARTITIONS, DIM, WORK = 12, 100, 1.5


class Training:
    """A table in a separate folder, and epochs of simulated work on it."""

    def __init__(self, folder: Path, nodes: int, *, prefetch: bool) -> None:
        folder.mkdir()
        layout = NodeLayout.ranges(nodes, PARTITIONS)
        geometry = Geometry.of(PARTITIONS, max(layout.sizes), DIM, 1)
        self.table = open_table(folder, geometry, device=False)
        self.buffer = PartitionBuffer(
            self.table,
            BucketSchedule(order("prefetch", PARTITIONS), seed=1),
            sizes=layout.sizes,
            initial=self.initial,
            prefetch=prefetch,
        )
        self.number, self.seconds_per_bucket = 0, 0.0

    @staticmethod
    def initial(partition: int, slot: Any) -> None:
        for array in slot:
            array[:] = partition / 7

    def epoch(self) -> None:
        """Train an epoch."""
        self.buffer.traffic = Traffic()
        for state in self.buffer.visits(self.number):
            for phase in state:
                self.work(phase, self.seconds_per_bucket)
        self.number += 1

    def work(self, phase: Any, seconds: float) -> None:
        for share in phase.shares:
            end = time.perf_counter() + seconds / share.of
            rows = self.buffer.slot(share.bucket[0])[0][:2000]
            rows += np.float32(1.0)
            while time.perf_counter() < end:
                np.sqrt(rows @ rows[:64].T)

    def contents(self) -> list[list[int]]:
        """Return a sum of every partition's bytes on disk."""
        self.buffer.flush()
        found = []
        slot = self.buffer.slot(next(iter(self.buffer.first_rows)))
        for partition in range(PARTITIONS):
            self.table.read(partition, slot).result()
            found.append([int(array.view(np.uint32).sum(dtype=np.uint64)) for array in slot])
        return found

    def close(self) -> None:
        self.buffer.close()
        self.table.close()


def rate(way: Any, folder: Path, size: int, what: str) -> Timed:
    """Return the seconds of a GB."""
    found = way(folder, size)
    return Timed(1e9 / getattr(found, what), found.direct)


def check_rate(values: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(values["ours"], bool)
    return {"O_DIRECT": "yes" if values["ours"] else "no"}


def trained(training: Training) -> list[list[int]]:
    training.epoch()
    return training.contents()


def check_bytes(values: dict[str, Any]) -> None:
    assert values["ours"] == values["without prefetch"], "prefetch changed what is on the disk"


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, size = given.scratch, given.size << 20
    for what, faster in (("read", 1.1), ("write", 1.1)):
        dd = partial(rate, measure_dd, folder, size, what)
        ours = partial(rate, measure, folder, size, what)
        yield Case(f"to {what} a GB", ours, check_rate, {"dd": Side(dd, faster)})
        on_gpu = partial(rate, partial(measure, device=True), folder, size, what)
        host = {"from the host": Side(ours, 1.0)}
        yield Case(f"to {what} a GB, from a GPU", on_gpu, check_rate, host, needs=[gpus(1)])
    trainings = {p: Training(folder / f"train-{p}", given.nodes, prefetch=p) for p in (True, False)}
    for training in trainings.values():
        for _ in range(2):
            training.epoch()  # the first reads nothing
    traffic = trainings[False].buffer.traffic
    hiding = trainings[True].buffer.schedule.hiding
    for training in trainings.values():
        training.seconds_per_bucket = WORK * traffic.exposed_seconds / traffic.swaps / hiding
    plain = Side(partial(trained, trainings[False]), 1.2)
    ours = partial(trained, trainings[True])
    yield Case("an epoch with prefetch", ours, check_bytes, {"without prefetch": plain})
    for training in trainings.values():
        training.close()


if __name__ == "__main__":
    sizes = Option("--nodes", 600_000, 60_000), Option("--size", 256, 32, "MB of a request")
    sys.exit(main(__doc__, cases, *sizes))
