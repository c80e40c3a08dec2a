"""Whether swaps of an embedding table hide, and the rates of reading and writing the disk.

    python benchmarks/bench_embed_storage.py [FOLDER] [--nodes 600000] [--dim 100] [--partitions 12]
                                             [--fio]

First checked: the same training with and without prefetch leaves the same bytes on the disk. Then
timed, in turns: the table's requests, dd and, with ``--fio``, fio with O_DIRECT in the same folder,
and with a GPU the table's requests from its memory, through pinned buffers; then an epoch of buffer
states with and without prefetch. The schedule is that of a training, which divides buckets among
all states that hold them. The training is simulated by NumPy on the rows of the phase, on one core:
the buckets that are at least trained during a swap take the time of a swap, times ``--work``, as
theorem 3 requires.
"""

import argparse
import platform
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from penstock.limits import cores
from penstock.partition.order import order
from penstock.sizes import format_bytes
from penstock.workers.embed.buffer import PartitionBuffer, Traffic
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule
from penstock.workers.embed.storage import THREADS, Geometry
from penstock.workers.embed.storage.direct import open_table
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.resources.device import gpu

# python -P leaves out the script's folder, which has the modules of this benchmark.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from storage_bandwidth import measure, measure_dd, measure_fio

OF_DD = 0.9  # required share of dd's rate


class Training:
    """A table in a separate folder, and epochs of simulated work on it."""

    def __init__(self, folder, options, *, prefetch):
        folder.mkdir()
        layout = NodeLayout.ranges(options.nodes, options.partitions)
        geometry = Geometry.of(options.partitions, max(layout.sizes), options.dim, 1)
        self.table = open_table(folder, geometry, device=False)
        self.versions = Checkpoints(folder).versions(geometry, None)
        self.buffer = PartitionBuffer(
            self.table,
            self.versions,
            BucketSchedule(order(options.order, options.partitions), seed=1),
            sizes=layout.sizes,
            initial=self.initial,
            prefetch=prefetch,
        )

    @staticmethod
    def initial(partition, slot):
        for array in slot:
            array[:] = partition / 7

    def epoch(self, number, seconds_per_bucket):
        """Train an epoch; return its seconds and the share in which it trained."""
        self.buffer.traffic = Traffic()
        start, busy = time.perf_counter(), 0.0
        for state in self.buffer.visits(number):
            for phase in state:
                began = time.perf_counter()
                self.work(phase, seconds_per_bucket)
                busy += time.perf_counter() - began
        took = time.perf_counter() - start
        return took, busy / took

    def work(self, phase, seconds):
        for share in phase.shares:
            end = time.perf_counter() + seconds / share.of
            rows = self.buffer.slot(share.bucket[0])[0][:2000]
            rows += np.float32(1.0)
            while time.perf_counter() < end:
                np.sqrt(rows @ rows[:64].T)

    def contents(self):
        """Return a sum of every partition's bytes on disk."""
        self.buffer.flush()
        found = []
        slot = self.buffer.slot(next(iter(self.buffer.first_rows)))
        for version in self.versions.newest:
            self.table.read(version, slot).result()
            found.append([int(array.view(np.uint32).sum(dtype=np.uint64)) for array in slot])
        return found

    def close(self):
        self.buffer.close()
        self.table.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir(), type=Path)
    parser.add_argument("--nodes", type=int, default=600_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--order", default="prefetch")
    parser.add_argument("--work", type=float, default=1.5, help="share of theorem 3's work")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fio", action="store_true", help="compare with fio too")
    options = parser.parse_args()
    print(f"{platform.node()}: {cores()} cores, {options}, {THREADS} requests in flight")
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        check(Path(place), options)
        kept = compare_with_dd(Path(place), options)
        compare_prefetch(Path(place), options)
    return 0 if kept else 1


def check(folder, options):
    found = []
    for prefetch in (True, False):
        training = Training(folder / f"check-{prefetch}", options, prefetch=prefetch)
        for number in range(2):
            training.epoch(number, 0.0)
        found.append(training.contents())
        training.close()
    assert found[0] == found[1], "prefetch changed what is on the disk"
    print("checked: the same bytes with and without prefetch")


def compare_with_dd(folder, options):
    ways = {"ours": measure, "dd": measure_dd}
    if options.fio:
        ways["fio"] = measure_fio
    if gpu():
        ways["GPU, pinned"] = partial(measure, device=True)
    found = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            found[name].append(way(folder))
    why = found["ours"][0].why_not_direct
    print("O_DIRECT" if why is None else f"page cache: {why}")
    kept = True
    for what in ("read", "write", "exchange"):
        rates = {
            name: statistics.median(getattr(one, what) for one in many)
            for name, many in found.items()
            if getattr(many[0], what) is not None  # dd does not read and write at once
        }
        ours = rates["ours"]
        print(f"{what:9} {format_bytes(ours)}/s ({spread_of(found['ours'], what)})")
        for name in list(rates)[1:]:
            label = "ratio to ours" if name.startswith("GPU") else "ratio"
            ratio = rates[name] / ours if name.startswith("GPU") else ours / rates[name]
            spread = spread_of(found[name], what)
            print(f"  {name} {format_bytes(rates[name])}/s ({spread}), {label} {ratio:.2f}")
        kept = kept and ours >= OF_DD * rates.get("dd", 0)
    print("kept" if kept else f"MISSED: {OF_DD:.0%} of dd are asked for")
    return kept


def spread_of(measured, name):
    rates = sorted(getattr(one, name) / 1e9 for one in measured)
    return f"{rates[0]:.2f} to {rates[-1]:.2f} GB/s"


def compare_prefetch(folder, options):
    trainings = {p: Training(folder / f"train-{p}", options, prefetch=p) for p in (True, False)}
    for training in trainings.values():
        for number in range(2):
            training.epoch(number, 0.0)  # the first reads nothing
    # The time of a swap alone, and the work of two buckets that hides it.
    traffic = trainings[False].buffer.traffic
    swap = traffic.exposed_seconds / traffic.swaps
    size = trainings[False].table.geometry.file_bytes
    print(
        f"a swap of {format_bytes(size)} each way: {1e3 * swap:.1f} ms alone, "
        f"{format_bytes(2 * size / swap)}/s"
    )
    hiding = trainings[True].buffer.schedule.hiding
    print(f"{hiding:.2f} buckets are trained during a swap at the least")
    times = {True: [], False: []}
    for number in range(2, 2 + options.rounds):
        for prefetch, training in trainings.items():
            took, busy = training.epoch(number, options.work * swap / hiding)
            times[prefetch].append((took, busy, training.buffer.traffic))
    for prefetch, found in times.items():
        found.sort(key=lambda one: one[0])
        took, busy, traffic = found[len(found) // 2]
        hidden = max(0.0, 1 - traffic.exposed_seconds / traffic.io_seconds)
        print(
            f"{'prefetch   ' if prefetch else 'no prefetch'} {took:.2f} s per epoch, trains "
            f"{busy:.1%} of it, I/O {traffic.io_seconds:.2f} s, exposed "
            f"{traffic.exposed_seconds:.2f} s ({hidden:.0%} hidden), "
            f"{format_bytes(traffic.bytes_read + traffic.bytes_written)} moved, "
            f"{traffic.swaps} swaps"
        )
    ratio = statistics.median(t[0] for t in times[False]) / statistics.median(
        t[0] for t in times[True]
    )
    print(f"with prefetch {ratio:.2f} times as fast")
    for training in trainings.values():
        training.close()


if __name__ == "__main__":
    sys.exit(main())
