"""Reading and writing a file through queues that a GPU fills, compared with the disk's rate.

    python -P benchmarks/bench_gpu_io.py [--quick] [--folder FOLDER] [--size 512]

    direct   threads of the host alone, as many as the controller's, with O_DIRECT and the most
             bytes per call that the controller moves at once, to and from page-locked memory
    batch    the kernel that enqueues at precomputed positions, rings once and polls together: ours
    locked   the kernel whose threads each take the queue's lock to enqueue, ring and free

What is written is read again and compared. Pages of 4 KiB of a file in memory (/dev/shm) show the
cost of the queues without a disk. Reading while training steps run on another stream is compared
with these steps alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, gpus, main, tampered

from penstock.kernels.queue_rules import Operation, Producer, QueueFormat, aligned
from penstock.workers.embed.storage.direct import open_direct
from penstock.workers.embed.storage.queue_controller import Controller

AT_ONCE = 2 << 20  # bytes per call, as the controller's most
THREADS, QUEUES, PATIENCE = 8, 8, 10.0
# A place, its format, and the measured times of direct and of locked over ours.
DISK = QueueFormat(entries=64, page_bytes=128 << 10), {"read": (1.04, 1.05), "write": (0.86, 1.05)}
MEMORY = QueueFormat(entries=256, page_bytes=4096), {"read": (1.0, 7.9), "write": (1.1, 1.8)}


class Place:
    """A file, the memory of its data, and the queues between them."""

    def __init__(self, path: Path, size: int, form: QueueFormat, stack: ExitStack):
        import cupy as cp

        from penstock.kernels.cuda.queues import Queues

        self.path, self.size, self.xp = path, size, cp
        memory = cp.cuda.alloc_pinned_memory(AT_ONCE * THREADS + 4096)
        pinned = np.frombuffer(memory, np.uint8, AT_ONCE * THREADS + 4096)
        self.pinned = aligned(pinned, AT_ONCE * THREADS)
        self.queues = Queues(QUEUES, form)
        self.data = self.xp.asarray(np.random.default_rng(0).integers(0, 256, size, np.uint8))
        # The file is written once before: new blocks of a disk take far longer.
        path.write_bytes(bytes(size))
        stack.callback(path.unlink)
        self.file = open_direct(path)[0]
        stack.callback(os.close, self.file)
        stack.enter_context(Controller(self.queues.shared, [self.file], threads=THREADS))

    def wait(self) -> None:
        self.xp.cuda.Device().synchronize()

    def moved(self, operation: Operation, producer: Producer = Producer.BATCH) -> Timed:
        """Write the data, or read them; return what is in memory then."""
        memory = self.data
        if operation == Operation.READ:
            memory = self.xp.full(self.size, 7, np.uint8)
        self.wait()
        begun = time.perf_counter()
        given = {"producer": producer, "patience": PATIENCE}
        result = self.queues.transfer(operation, 0, 0, memory, **given)
        self.wait()
        seconds = time.perf_counter() - begun
        status, pages = result.get().tolist()
        assert not status, f"{producer.name}: status {status}"
        assert pages == -(-self.size // self.queues.shared.form.page_bytes)
        return Timed(seconds, memory)

    def direct(self, operation: Operation) -> Timed:
        """Move the file by threads of the host alone."""
        call = os.preadv if operation == Operation.READ else os.pwritev

        def work(number: int) -> None:
            part = self.pinned[number * AT_ONCE : (number + 1) * AT_ONCE]
            for first in range(number * AT_ONCE, self.size, THREADS * AT_ONCE):
                count = min(AT_ONCE, self.size - first)
                assert call(self.file, [part[:count]], first) == count

        begun = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        return Timed(time.perf_counter() - begun)

    def check(self, operation: Operation, values: dict[str, Any]) -> None:
        """Compare what was moved with the data, after another writing, since direct has written."""
        self.moved(Operation.WRITE)
        there = self.xp.asarray(np.fromfile(self.path, np.uint8))
        assert bool((there == self.data).all())
        again = self.moved(Operation.READ).value
        assert bool((tampered(again) == self.data).all())


def training() -> Callable[[], Any]:
    """Return a function that trains one batch on the GPU."""
    import cupy as cp

    from penstock.kernels.cuda import embed
    from penstock.kernels.embed_rules import Batch, EmbedRules, Model, Table

    rules, nodes, edges = EmbedRules(Model.DOT, 100), 1_000_000, 100_000
    values = cp.random.standard_normal((nodes, 100), dtype=cp.float32) / 10
    table = Table(values, cp.full((nodes, 100), 0.1, cp.float32))
    ends = cp.random.randint(0, nodes, (2, edges), dtype=cp.int32)
    negatives = cp.random.randint(0, nodes, (2, rules.chunks(edges), 1000), dtype=cp.int32)
    batch = Batch(ends[0], None, ends[1], negatives)
    return lambda: embed.step(table, None, batch, rules, 0.01)


def steps(place: Place, step: Callable[[], Any], count: int, *, read: bool) -> Timed:
    """Train steps, and read meanwhile on another stream; return the seconds of the steps."""
    cp = place.xp
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    place.wait()
    with streams[0]:
        result = None
        if read:
            result = place.queues.transfer(Operation.READ, 0, 0, place.data, patience=PATIENCE)
    with streams[1]:
        begin.record()
        for _ in range(count):
            step()
        end.record()
    place.wait()
    status = 0 if result is None else int(result[0])
    return Timed(1e-3 * float(cp.cuda.get_elapsed_time(begin, end)), status)


def check_status(values: dict[str, Any]) -> None:
    assert values["ours"] == 0


def cases(given: argparse.Namespace) -> Iterator[Case]:
    shared = Path("/dev/shm") / f"gpu_io_{os.getpid()}.bin"
    with ExitStack() as stack:
        for name, path, size, (form, ratios) in (
            ("the disk", given.scratch / "file", given.size << 20, DISK),
            ("memory, pages of 4 KiB", shared, min(given.size, 64) << 20, MEMORY),
        ):
            place = Place(path, size, form, stack)
            for operation in (Operation.WRITE, Operation.READ):
                what = operation.name.lower()
                direct, locked = ratios[what]
                way = partial(place.moved, operation, Producer.LOCKED)
                sides = {"direct": Side(partial(place.direct, operation), direct)}
                sides["locked"] = Side(way, locked)
                run, check = partial(place.moved, operation), partial(place.check, operation)
                yield Case(f"{what}, {name}", run, check, sides, (size, "bytes"))
            if name == "the disk":
                step = training()
                step()
                alone = partial(steps, place, step, 200, read=False)
                run = partial(steps, place, step, 200, read=True)
                sides = {"alone": Side(alone, 1.0)}
                yield Case("200 training steps while reading", run, check_status, sides)


if __name__ == "__main__":
    size = Option("--size", 512, 16, "MB of the file")
    sys.exit(main(__doc__, cases, size, needs=(gpus(1),), gpu=cases))
