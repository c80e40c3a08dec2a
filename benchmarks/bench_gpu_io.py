"""Reading and writing a file through queues that a GPU fills, beside what the disk can do.

    python -P benchmarks/bench_gpu_io.py [--folder .] [--size 4294967296] [--host] [--json]

Compared, each ``--rounds`` times and in turns, medians in GB/s:

    direct   threads of the host alone, as many as the controller has, with O_DIRECT and the most
             bytes a call that the controller moves at once, to and from page-locked memory
    batch    the kernel that enqueues at places known beforehand, rings once and polls together
    locked   the kernel whose threads each take the queue's lock to enqueue, ring and free

Before anything is timed, fresh random data are written and read by each producer and compared. Then
batch reads while training steps run on another stream: what each costs the other. A last part moves
pages of 4 KiB of a file in memory (/dev/shm), where no disk hides what the queues cost.

With --host the producer is that of naive/queues.py, which needs no GPU and copies pages by itself,
one round after another: this tries the controller and the benchmark, and is no figure of either.
"""

import argparse
import json
import os
import statistics
import threading
import time
from pathlib import Path

import numpy as np

from penstock.kernels.naive import queues as naive
from penstock.kernels.queue_rules import Operation, Producer, QueueFormat, aligned
from penstock.workers.embed.queue_controller import Controller

AT_ONCE = 2 << 20  # bytes a call, as the controller's most
SMALL_FORM, SMALL_SIZE = QueueFormat(entries=256, page_bytes=4096), 64 << 20


class Device:
    """Where data lie and who produces commands: a GPU, or the host."""

    def __init__(self, host):
        self.host = host
        self.producers = [Producer.BATCH] if host else list(Producer)

    def queues(self, count, form):
        if self.host:
            return naive.Queues(count, form)
        from penstock.kernels.cuda.queues import Queues

        return Queues(count, form)

    def put(self, data):
        if self.host:
            return data.copy()
        import cupy as cp

        return cp.asarray(data)

    def get(self, data):
        return data if self.host else data.get()

    def pinned(self, size):
        if self.host:
            return aligned(np.zeros(size + 4096, np.uint8), size)
        import cupy as cp

        memory = cp.cuda.alloc_pinned_memory(size + 4096)
        return aligned(np.frombuffer(memory, np.uint8, size + 4096), size)

    def seconds(self, call):
        """Return how long a call takes until its result is there."""
        self.wait()
        start = time.perf_counter()
        result = call()
        self.wait()
        return time.perf_counter() - start, result

    def wait(self):
        if not self.host:
            import cupy as cp

            cp.cuda.Device().synchronize()

    @property
    def name(self):
        if self.host:
            return "host"
        import cupy as cp

        return cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode()


def check(device, queues, data, producer, patience):
    """Write and read fresh data; raise if a byte differs."""
    fresh = np.random.default_rng(int(producer)).bytes(data.size)
    fresh = np.frombuffer(fresh, np.uint8)
    given = {"producer": producer, "patience": patience}
    there, back = device.put(fresh), device.put(np.full(data.size, 7, np.uint8))
    for operation, memory in ((Operation.WRITE, there), (Operation.READ, back)):
        done(device, queues.transfer(operation, 0, 0, memory, **given), producer, data.size, queues)
    np.testing.assert_array_equal(device.get(back), fresh)


def done(device, result, producer, size, queues):
    """Raise unless a transfer moved all its pages."""
    status, pages = device.get(result).tolist()
    expected = -(-size // queues.shared.form.page_bytes)
    if status or pages != expected:
        raise SystemExit(f"{producer.name}: status {status}, {pages} of {expected} pages moved")


def direct(path, size, operation, threads, memory):
    """Move a file by threads of the host alone; return seconds."""
    try:
        opened = os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError:
        opened = os.open(path, os.O_RDWR)
    pieces = range(0, size, AT_ONCE)
    call = os.preadv if operation == Operation.READ else os.pwritev

    def work(number):
        part = memory[number * AT_ONCE : (number + 1) * AT_ONCE]
        for first in pieces[number::threads]:
            count = min(AT_ONCE, size - first)
            moved = call(opened, [part[:count]], first)
            if moved != count:
                raise OSError(f"{moved} of {count} bytes moved")

    crew = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    start = time.perf_counter()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    seconds = time.perf_counter() - start
    os.close(opened)
    return seconds


def compare(device, path, size, form, given):
    """Return GB/s of each way, reading and writing."""
    made, data = device.queues(given.queues, form), np.zeros(size, np.uint8)
    memory = device.pinned(AT_ONCE * given.threads)
    found = {}
    with Controller(made.shared, [path], threads=given.threads) as controller:
        for producer in device.producers:
            check(device, made, data, producer, given.patience)
        on_device = device.put(data)
        for _ in range(given.rounds):
            for operation in Operation:
                took = direct(path, size, operation, given.threads, memory)
                found.setdefault(("direct", operation.name.lower()), []).append(took)
                for producer in device.producers:
                    took, result = device.seconds(
                        lambda how=producer, what=operation: made.transfer(
                            what, 0, 0, on_device, producer=how, patience=given.patience
                        )
                    )
                    done(device, result, producer, size, made)
                    key = producer.name.lower(), operation.name.lower()
                    found.setdefault(key, []).append(took)
        went_direct = controller.direct
    rates = {key: size / 1e9 / statistics.median(times) for key, times in found.items()}
    return rates, went_direct


def training_steps():
    """Return a function that trains one batch on the GPU."""
    import cupy as cp

    from penstock.kernels.cuda import embed
    from penstock.kernels.embed_rules import Batch, EmbedRules, Model, Table

    rules, nodes, edges = EmbedRules(Model.DOT, 100), 1_000_000, 100_000
    table = Table(
        cp.random.standard_normal((nodes, 100), dtype=cp.float32) / 10,
        cp.full((nodes, 100), 0.1, cp.float32),
    )
    ends = cp.random.randint(0, nodes, (2, edges), dtype=cp.int32)
    negatives = cp.random.randint(0, nodes, (2, rules.chunks(edges), 1000), dtype=cp.int32)
    batch = Batch(ends[0], None, ends[1], negatives)
    return lambda: embed.step(table, None, batch, rules, 0.01)


def beside_training(device, path, size, form, given):
    """Return seconds of reading and of training steps, each alone and both at once."""
    import cupy as cp

    step = training_steps()
    made = device.queues(given.queues, form)
    on_device = device.put(np.zeros(size, np.uint8))
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    step()
    with Controller(made.shared, [path], threads=given.threads):

        def run(steps, reads):
            events = [[cp.cuda.Event(), cp.cuda.Event()] for _ in streams]
            results = []
            device.wait()
            for stream, (start, stop), wanted in zip(streams, events, (reads, steps), strict=True):
                with stream:
                    start.record()
                    for _ in range(wanted):
                        if stream is streams[0]:
                            results.append(
                                made.transfer(
                                    Operation.READ, 0, 0, on_device, patience=given.patience
                                )
                            )
                        else:
                            step()
                    stop.record()
            device.wait()
            for result in results:
                done(device, result, Producer.BATCH, size, made)
            return [cp.cuda.get_elapsed_time(*pair) / 1e3 for pair in events]

        run(10, 0)
        reading = run(0, 1)[0]
        one = run(50, 0)[1] / 50
        steps = max(1, int(reading / one))  # about as long as the reading
        training = run(steps, 0)[1]
        both = run(steps, 1)
    return {
        "read_alone": reading,
        "read_beside": both[0],
        "train_alone": training,
        "train_beside": both[1],
        "steps": steps,
    }


def report_rates(rates):
    for operation in ("read", "write"):
        ceiling = rates["direct", operation]
        for (way, what), rate in rates.items():
            if what == operation:
                print(f"  {operation:6} {way:7} {rate:7.2f} GB/s, {rate / ceiling:.0%} of direct")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--size", type=int, default=4 << 30, help="bytes, a multiple of 4096")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--entries", type=int, default=64)
    parser.add_argument("--page", type=int, default=128 << 10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--patience", type=float, default=10.0, help="seconds of a round, after which it is a hang"
    )
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    device, form = Device(given.host), QueueFormat(given.entries, given.page)
    path, small = given.folder / "gpu_io.bin", Path("/dev/shm") / f"gpu_io_{os.getpid()}.bin"
    try:
        rates, went_direct = compare(device, path, given.size, form, given)
        beside = None if given.host else beside_training(device, path, given.size, form, given)
        size = min(SMALL_SIZE, given.size)
        in_memory, _ = compare(device, small, size, SMALL_FORM, given)
    finally:
        path.unlink(missing_ok=True)
        small.unlink(missing_ok=True)
    if given.json:
        as_text = {
            name: {f"{way} {what}": rate for (way, what), rate in found.items()}
            for name, found in (("disk", rates), ("memory, 4 KiB", in_memory))
        }
        print(json.dumps({"device": device.name, **as_text, "beside": beside}))
        return
    around = "O_DIRECT" if went_direct else "through the page cache: no figure of the disk"
    print(
        f"{given.size / 1e9:.2f} GB on {device.name}, {given.queues} queues of {form.entries} "
        f"pages of {form.page_bytes >> 10} KiB, {given.threads} threads, {around}"
    )
    report_rates(rates)
    print("a file in memory, pages of 4 KiB, 256 entries")
    report_rates(in_memory)
    if beside is not None:
        slower = beside["train_beside"] / beside["train_alone"] - 1
        later = beside["read_beside"] / beside["read_alone"] - 1
        print(
            f"beside {beside['steps']} training steps: reading {beside['read_beside']:.3f} s "
            f"({later:+.1%}), training {beside['train_beside']:.3f} s ({slower:+.1%})"
        )


if __name__ == "__main__":
    main()
