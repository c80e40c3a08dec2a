"""Arrays between GPUs: a gang's Communicator and torch.distributed.

    python -P benchmarks/bench_nccl.py [--quick] [--ranks 2] [--sizes 1 64 1024]

mpiexec starts one rank per GPU. Both reduce, or exchange parts of, the same float32 arrays of 1 MB,
64 MB and 1 GB per rank, in turn. Each rank compares its results with those computed from the seeds;
sums of both are compared again. A time is that of the slowest rank in a round: "in a row" for many
operations and one wait at the end, "each" for operations with one wait each. Rates are of bus
bandwidth as NCCL's own tests define it: 2 (n - 1) / n of the bytes for a reduction, (n - 1) / n for
all-to-all. NCCL, torch and CuPy must be in one Python.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, gpus, installed, main
from ranks import communicator, launched, with_gpu

IN_A_ROW = {1: 50, 64: 20, 1024: 8}  # a sum of n ranks grows n-fold each time
ROUNDS = 8  # of a run; the first warms up
GATED_MB = 64  # smaller ones have no gate
SHARES = {"in a row": 0.96, "each": 0.79}  # torch's time over ours, on two H200


class Method(NamedTuple):
    """Functions that begin one operation, and wait for all begun ones."""

    begin: Callable[[], Any]
    wait: Callable[[list[Any]], Any]


class Rank:
    """One rank: the two communicators, and the arrays that they share."""

    def __init__(self, largest: int) -> None:
        self.world = with_gpu()
        self.rank, self.size = self.world.rank, self.world.size
        import cupy
        import torch

        self.cupy, self.torch = cupy, torch
        torch.cuda.set_device(0)
        cupy.cuda.Device(0).use()
        self.ours = self.communicator()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = self.world.bcast(probe.getsockname()[1])
        torch.distributed.init_process_group(
            "nccl",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=self.rank,
            world_size=self.size,
            device_id=torch.device("cuda", 0),
        )
        # Memory of CuPy, which torch sees too.
        self.data = cupy.empty(largest // 4, np.float32)
        self.came = cupy.empty(largest // 4, np.float32)

    def communicator(self) -> Any:
        """Begin two gangs, record the cost of their communicators, and return the second."""
        self.cupy.zeros(1)
        free = self.cupy.cuda.runtime.memGetInfo()[0]
        first, begun = self.gang()
        first.allreduce(self.cupy.ones(1 << 20))
        first.alltoall(self.cupy.ones((self.size, 1 << 18)))
        taken = free - self.cupy.cuda.runtime.memGetInfo()[0]
        first.leave()
        ours, begun_again = self.gang()
        self.costs = begun, begun_again, taken
        return ours

    def gang(self) -> tuple[Any, float]:
        """Return a communicator of all ranks, and the seconds of its creation."""
        self.world.Barrier()
        start = time.perf_counter()
        comm = communicator(self.world, on_gpus=True)
        return comm, time.perf_counter() - start

    def fill(self, seed: int, size: int, rank: int | None = None) -> Any:
        """Return ``size`` bytes of a rank's random numbers; without ``rank``, set the arrays."""
        random = self.cupy.random.default_rng(1000 * seed + (self.rank if rank is None else rank))
        made = random.random(size // 4, dtype=np.float32) - np.float32(0.5)
        if rank is None:
            self.data[: size // 4] = made
            self.came[: size // 4] = np.nan
        self.cupy.cuda.runtime.deviceSynchronize()
        return made

    def seen(self, array: Any) -> Any:
        """Return an array as torch's tensor, the same memory."""
        tensor = self.torch.as_tensor(array, device="cuda")
        assert tensor.data_ptr() == array.data.ptr
        return tensor

    def reductions(self, size: int) -> dict[str, Method]:
        """Return the ways to sum the first ``size`` bytes of every rank."""
        array = self.data[: size // 4]
        tensor = self.seen(array)
        return {
            "ours": Method(lambda: self.ours.iallreduce(array), self.ours.wait),
            "torch": Method(
                lambda: self.torch.distributed.all_reduce(tensor),
                lambda _: self.torch.cuda.synchronize(),
            ),
        }

    def exchanges(self, size: int) -> dict[str, Method]:
        """Return the ways to send a part of the first ``size`` bytes to every rank."""
        n = self.size
        part = size // 4 // n
        to = [self.data[r * part : (r + 1) * part] for r in range(n)]
        source = [self.came[r * part : (r + 1) * part] for r in range(n)]
        sent, received = self.seen(self.data[: part * n]), self.seen(self.came[: part * n])
        return {
            "ours": Method(lambda: self.ours.ialltoallv(to, source), self.ours.wait),
            "torch": Method(
                lambda: self.torch.distributed.all_to_all_single(received, sent),
                lambda _: self.torch.cuda.synchronize(),
            ),
        }

    def check(self, operation: str, size: int, methods: dict[str, Method]) -> dict[str, Any]:
        """Compare results on random numbers with those of the seeds; return sums of all ranks."""
        part, sums = size // 4 // self.size, {}
        for seed, (name, method) in enumerate(methods.items()):
            self.fill(seed, size)
            method.wait([method.begin()])
            if operation == "allreduce":
                found, expected = self.data[: size // 4], self.cupy.zeros(size // 4)
                for rank in range(self.size):
                    expected += self.fill(seed, size, rank)
            else:
                mine = slice(self.rank * part, (self.rank + 1) * part)
                found = self.came[: part * self.size]
                expected = self.cupy.concatenate(
                    [self.fill(seed, size, rank)[mine] for rank in range(self.size)]
                )
            error = float(self.cupy.abs(found - expected).max())
            limit = 1e-6 if operation == "allreduce" else 0.0
            if not error <= limit:  # also if it is NaN
                raise AssertionError(f"{name} {operation} of {size} bytes is wrong by {error}")
            both = [float(each.sum(dtype=np.float64)) for each in (found, expected)]
            sums[name], sums[f"{name}, by seeds"] = zip(*self.world.allgather(both), strict=True)
        self.cupy.get_default_memory_pool().free_all_blocks()
        return sums

    def seconds(self, method: Method, size: int, count: int, each: bool) -> float:
        """Return the time of one operation on the slowest rank."""
        self.fill(count, size)
        self.world.Barrier()
        start = time.perf_counter()
        if each:
            for _ in range(count):
                method.wait([method.begin()])
        else:
            method.wait([method.begin() for _ in range(count)])
        taken = (time.perf_counter() - start) / count
        return float(max(self.world.allgather(taken)))

    def compare(self, operation: str, megabytes: int) -> dict[str, dict[str, Any]]:
        """Check and time the ways at one size; return the seconds of every round, and sums."""
        size = megabytes << 20
        made = self.reductions(size) if operation == "allreduce" else self.exchanges(size)
        times, sums = {}, self.check(operation, size, made)
        for each in (False, True):
            count = IN_A_ROW.get(megabytes, 8)
            found: dict[str, list[float]] = {name: [] for name in made}
            for _ in range(ROUNDS):
                for name, method in made.items():
                    found[name].append(self.seconds(method, size, count, each))
            manner = "each" if each else "in a row"
            one = {"seconds": found, "sums": sums}
            times[f"{operation}, {megabytes} MB, {manner}"] = one
        return times


def measure(path: Path, sizes: list[int]) -> None:
    """Be one rank; the first writes the times, if no check has raised."""
    rank = Rank(max(sizes) << 20)
    times: dict[str, Any] = {}
    for operation in ("allreduce", "all-to-all"):
        for size in sizes:
            times |= rank.compare(operation, size)
    rank.ours.leave()
    if rank.rank == 0:
        body = {"times": times, "costs": rank.costs}
        path.write_text(json.dumps(body))
    rank.torch.distributed.destroy_process_group()


@cache
def measured(ranks: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.json"
        launched(ranks, [__file__, "--rank", str(path), *map(str, sizes)])
        return json.loads(path.read_text())


def taken(ranks: int, sizes: tuple[int, ...], name: str, side: str) -> Callable[[], Timed]:
    """Return a function that gives the time of the next round."""
    rounds = iter(range(1 << 30))

    def run() -> Timed:
        found = measured(ranks, sizes)["times"][name]
        return Timed(found["seconds"][side][next(rounds) % ROUNDS], found["sums"][side])

    return run


def check(ranks: int, sizes: tuple[int, ...], name: str, values: dict[str, Any]) -> dict[str, Any]:
    sums = measured(ranks, sizes)["times"][name]["sums"]
    for side, found in values.items():
        np.testing.assert_allclose(found, sums[f"{side}, by seeds"], rtol=1e-6, atol=1.0)
    first, second, memory = measured(ranks, sizes)["costs"]
    return {"first gang, s": first, "next, s": second, "MB of a GPU": memory / 2**20}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    sizes, n = tuple(given.sizes), given.ranks or (4 if gpus(4)() is None else 2)
    for operation in ("allreduce", "all-to-all"):
        for size in sizes:
            for manner in ("in a row", "each"):
                name = f"{operation}, {size} MB, {manner}"
                time_of = partial(taken, n, sizes, name)
                ratio = SHARES[manner] if size >= GATED_MB else None
                sides = {"torch": Side(time_of("torch"), ratio)}
                share = (n - 1) / n * (2 if operation == "allreduce" else 1)
                work = share * (size << 20), "bytes"
                yield Case(name, time_of("ours"), partial(check, n, sizes, name), sides, work)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        measure(Path(sys.argv[2]), [int(size) for size in sys.argv[3:]])
    else:
        options = [
            Option("--ranks", 0, 2, "0: 4 if there are as many GPUs, or 2"),
            Option("--sizes", [1, 64, 1024], [1, 64], "in MB"),
        ]
        sys.exit(main(__doc__, cases, *options, needs=(gpus(2), installed("torch")), gpu=cases))
