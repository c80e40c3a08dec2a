"""Reading and writing a file through queues that a GPU fills, compared with the disk's rate.

    python -P benchmarks/bench_gpu_io.py [--folder .] [--size 268435456] [--seconds 60] [--host]

Compared, each ``--rounds`` times and in turns, medians in GB/s:

    direct   threads of the host alone, the number of the controller's, with O_DIRECT and the most
             bytes per call that the controller moves at once, to and from page-locked memory
    batch    the kernel that enqueues at precomputed positions, rings once and polls together
    locked   the kernel whose threads each take the queue's lock to enqueue, ring and free

Before any timing, each producer writes and reads fresh random data, which are compared. Then batch
reads while training steps run on another stream, to measure their mutual cost. A last part moves
pages of 4 KiB of a file in memory (/dev/shm), so that no disk hides the cost of the queues.

Results are printed at once. The threads' rate of writing is measured first: the file is smaller
than --size if it could not be moved often enough within --seconds, and no round or part begins
after them.

With --host the producer is that of naive/queues.py, which needs no GPU and copies pages itself, one
round after another: this tests the controller and the benchmark; its figures have no meaning.
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
from penstock.workers.embed.storage.queue_controller import Controller

CHECKED = 16 << 20  # bytes of the file that are compared
AT_ONCE = 2 << 20  # bytes per call, as the controller's most
SMALL_FORM, SMALL_SIZE = QueueFormat(entries=256, page_bytes=4096), 64 << 20


class Device:
    """The memory of the data and the producer of commands: a GPU, or the host."""

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
        """Return the seconds of a call until its result is complete."""
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
    made, memory = device.queues(given.queues, form), device.pinned(AT_ONCE * given.threads)
    size, found = fitting(path, size, memory, device, given), {}
    data = np.zeros(size, np.uint8)
    with Controller(made.shared, [path], threads=given.threads) as controller:
        for producer in device.producers:
            took, _ = device.seconds(
                lambda how=producer: check(device, made, data[:CHECKED], how, given.patience)
            )
            say(given, f"  {producer.name.lower()}: what is written is read, {took:.1f} s")
        on_device = device.put(data)
        for number in range(given.rounds):
            if number and time.monotonic() > given.until:
                break
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
            last = ", ".join(
                f"{way} {what} {size / 1e9 / times[-1]:.2f}" for (way, what), times in found.items()
            )
            say(given, f"  round {number + 1}, {size / 1e6:.0f} MB, GB/s: {last}")
        went_direct = controller.direct
    rates = {key: size / 1e9 / statistics.median(times) for key, times in found.items()}
    return rates, went_direct


def fitting(path, size, memory, device, given):
    """Return the size of a file that ``compare`` can move often enough in the time."""
    part = min(size, CHECKED)
    with path.open("wb") as file:
        file.write(bytes(part))
    took = direct(path, part, Operation.WRITE, given.threads, memory)
    left = max(given.until - time.monotonic(), 1.0)
    moves = 1 + len(Operation) * (1 + len(device.producers))
    fits = int(0.3 * left * part / took / moves)  # of one round
    size = max(min(size, fits // AT_ONCE * AT_ONCE), part)
    # The file is written once before: new blocks of the disk take far longer.
    with path.open("r+b") as file:
        for _ in range(-(-size // AT_ONCE)):
            file.write(bytes(AT_ONCE))
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())
    return size


def say(given, text):
    """Print a line of progress for people."""
    if not given.json:
        print(text, flush=True)


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


def overlap_with_training(device, path, size, form, given):
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
        "read_overlapped": both[0],
        "train_alone": training,
        "train_overlapped": both[1],
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
    parser.add_argument("--size", type=int, default=256 << 20, help="bytes, a multiple of 4096")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--entries", type=int, default=64)
    parser.add_argument("--page", type=int, default=128 << 10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--patience", type=float, default=10.0, help="seconds of a round, after which it is a hang"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="in all, about")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.until = time.monotonic() + given.seconds
    device, form = Device(given.host), QueueFormat(given.entries, given.page)
    path, small = given.folder / "gpu_io.bin", Path("/dev/shm") / f"gpu_io_{os.getpid()}.bin"
    rates, in_memory, overlap = {}, {}, None
    say(
        given,
        f"{device.name}, {given.queues} queues of {form.entries} pages of "
        f"{form.page_bytes >> 10} KiB, {given.threads} threads",
    )
    try:
        rates, went_direct = compare(device, path, given.size, form, given)
        size = path.stat().st_size
        if not went_direct:
            say(given, "through the page cache: no figure of the disk")
        if not given.json:
            report_rates(rates)
        if time.monotonic() < given.until:
            say(given, "a file in memory, pages of 4 KiB, 256 entries")
            in_memory, _ = compare(device, small, min(SMALL_SIZE, given.size), SMALL_FORM, given)
            if not given.json:
                report_rates(in_memory)
        if not given.host and time.monotonic() < given.until:
            overlap = overlap_with_training(device, path, min(size, 128 << 20), form, given)
    finally:
        path.unlink(missing_ok=True)
        small.unlink(missing_ok=True)
    if given.json:
        as_text = {
            name: {f"{way} {what}": rate for (way, what), rate in found.items()}
            for name, found in (("disk", rates), ("memory, 4 KiB", in_memory))
        }
        print(json.dumps({"device": device.name, **as_text, "overlap": overlap}))
    elif overlap is not None:
        slower = overlap["train_overlapped"] / overlap["train_alone"] - 1
        later = overlap["read_overlapped"] / overlap["read_alone"] - 1
        print(
            f"during {overlap['steps']} training steps: reading {overlap['read_overlapped']:.3f} s "
            f"({later:+.1%}), training {overlap['train_overlapped']:.3f} s ({slower:+.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
