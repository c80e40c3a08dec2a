"""Arrays between GPUs: a gang's Communicator, plain CuPy NCCL and torch.distributed, checked first.

    python benchmarks/bench_nccl.py [--ranks 4] [--sizes 1 64 1024] [--rounds 7]

mpiexec starts one rank per GPU. All three reduce, or exchange parts of, the same float32 arrays of
1 MB, 64 MB and 1 GB per rank, in turn; each result is compared with one computed from the seeds. A
time is the median over rounds of the slowest rank: "in a row" for many operations and one wait at
the end, "each" for operations with one wait each. Bus bandwidth is defined as in NCCL's own tests:
2 (n - 1) / n of the bytes for a reduction, (n - 1) / n for all-to-all, over the time. From 64 MB,
Penstock must reach 90 % of torch.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

GATE, GATED_MB = 0.90, 64
IN_A_ROW = {1: 50, 64: 20, 1024: 8}  # a sum of n ranks grows n-fold each time


class Method(NamedTuple):
    """Functions that begin one operation, and wait for all begun ones."""

    begin: Callable[[], Any]
    wait: Callable[[list[Any]], Any]


def launch(given: argparse.Namespace) -> int:
    """Start the ranks and return their exit code."""
    from penstock.cluster.mpi.mpiexec import find_launcher, launch_environment, loaded_library

    library = loaded_library()
    launcher = find_launcher(None, library)
    env = {
        "OMPI_MCA_hwloc_base_binding_policy": "none",  # Open MPI 4, and 5:
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    env |= launch_environment(launcher, os.environ, root=os.geteuid() == 0, library=library)
    command = [launcher.path, "-n", str(given.ranks), sys.executable, "-P", *sys.argv, "--rank"]
    return subprocess.run(command, check=False, env=env).returncode


class Rank:
    """One rank: the three communicators, and the arrays that they share."""

    def __init__(self, largest: int) -> None:
        from penstock.workers.resources.device import devices_here, local_rank, visible_devices

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        here = local_rank(os.environ) or 0
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(here, devices_here(), visible)
        from penstock.workers.comm.mpi import load_mpi

        self.world = load_mpi().COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        import cupy
        import torch
        from cupy.cuda import nccl

        self.cupy, self.torch, self.nccl = cupy, torch, nccl
        torch.cuda.set_device(0)
        cupy.cuda.Device(0).use()
        self.ours = self.communicator()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        name = self.world.bcast(nccl.get_unique_id() if self.rank == 0 else None)
        self.plain = nccl.NcclCommunicator(self.size, name, self.rank)
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

    def gang(self, staged: bool = False) -> tuple[Any, float]:
        """Return a communicator of all ranks, and the seconds of its creation."""
        from penstock.workers.comm.communicator import Communicator
        from penstock.workers.comm.exchange_device import device_exchange
        from penstock.workers.comm.exchange_staged import StagedExchange
        from penstock.workers.comm.wait import Waiter

        comm, waiter = self.world.Dup(), Waiter()
        self.world.Barrier()
        start = time.perf_counter()
        if staged:
            device = StagedExchange(comm)
        else:
            device = device_exchange(comm, waiter, tuple(range(self.size)), "bench")
        begun = time.perf_counter() - start
        return Communicator(comm, waiter, wait_timeout=60, device=device), begun

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
        where, stream = array.data.ptr, self.stream
        float32, add = self.nccl.NCCL_FLOAT32, self.nccl.NCCL_SUM
        return {
            "ours": Method(lambda: self.ours.iallreduce(array), self.ours.wait),
            "cupy": Method(
                lambda: self.plain.allReduce(where, where, array.size, float32, add, stream.ptr),
                lambda _: stream.synchronize(),
            ),
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
        stream, float32 = self.stream, self.nccl.NCCL_FLOAT32

        def plain() -> None:
            self.nccl.groupStart()
            for r in range(n):
                self.plain.send(to[r].data.ptr, part, float32, r, stream.ptr)
                self.plain.recv(source[r].data.ptr, part, float32, r, stream.ptr)
            self.nccl.groupEnd()

        return {
            "ours": Method(lambda: self.ours.ialltoallv(to, source), self.ours.wait),
            "cupy": Method(plain, lambda _: stream.synchronize()),
            "torch": Method(
                lambda: self.torch.distributed.all_to_all_single(received, sent),
                lambda _: self.torch.cuda.synchronize(),
            ),
        }

    def check(self, operation: str, size: int, methods: dict[str, Method]) -> None:
        """Compare each method's result on fresh random numbers with those of the seeds."""
        part = size // 4 // self.size
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
        self.cupy.get_default_memory_pool().free_all_blocks()

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

    def compare(self, operation: str, megabytes: int, rounds: int) -> list[tuple[str, float]]:
        """Check and time the three ways at one size; print one row per wait, return ratios."""
        size = megabytes << 20
        made = self.reductions(size) if operation == "allreduce" else self.exchanges(size)
        self.check(operation, size, made)
        share = (self.size - 1) / self.size * (2 if operation == "allreduce" else 1)
        ratios = []
        for each in (False, True):
            count = IN_A_ROW.get(megabytes, 8)
            found: dict[str, list[float]] = {name: [] for name in made}
            for round_ in range(rounds + 1):
                for name, method in made.items():
                    taken = self.seconds(method, size, count, each)
                    if round_:  # the first one warms up
                        found[name].append(taken)
            times = {name: float(np.median(all_)) for name, all_ in found.items()}
            manner = "each" if each else "in a row"
            cells = [operation, f"{megabytes} MB", manner]
            cells += [f"{times[name] * 1e3:.3f}" for name in made]
            cells += [f"{share * size / times[name] / 1e9:.0f}" for name in made]
            cells += [f"{times[name] / times['ours']:.2f}" for name in ("cupy", "torch")]
            spread = max(found["ours"]) / min(found["ours"]) - 1
            self.say(f"| {' | '.join(cells)} | {spread:.0%} |")
            if megabytes >= GATED_MB:
                ratio = times["torch"] / times["ours"]
                ratios.append((f"{operation} {megabytes} MB {manner}", ratio))
        return ratios

    def through_the_host(self, megabytes: int) -> None:
        """Print the cost of the same without NCCL, by pinned memory and MPI."""
        size, found = megabytes << 20, []
        nccl, (self.ours, _) = self.ours, self.gang(staged=True)
        for operation, made in (
            ("allreduce", self.reductions(size)),
            ("all-to-all", self.exchanges(size)),
        ):
            ours = {"ours": made["ours"]}
            self.check(operation, size, ours)
            taken = min(self.seconds(ours["ours"], size, 2, each=True) for _ in range(2))
            found.append(f"{operation} of {megabytes} MB {taken * 1e3:.0f} ms")
        self.say(f"\nby way of pinned memory and MPI: {', '.join(found)}")
        self.ours.leave()
        self.ours = nccl

    def say(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)


def measure(given: argparse.Namespace) -> int:
    """Be one rank; return 0 if the gate was passed."""
    rank = Rank(max(given.sizes) << 20)
    props = rank.cupy.cuda.runtime.getDeviceProperties(0)
    first, second, memory = rank.costs
    rank.say(
        f"{rank.size} x {props['name'].decode()}, {type(rank.ours._device).__name__}, NCCL "
        f"{rank.nccl.get_version()} (torch: {'.'.join(map(str, rank.torch.cuda.nccl.version()))}), "
        f"CuPy {rank.cupy.__version__}, torch {rank.torch.__version__}, "
        f"NCCL_NVLS_ENABLE={os.environ.get('NCCL_NVLS_ENABLE', 'unset')}"
    )
    rank.say(
        f"first gang's communicator {first:.2f} s and {memory / 2**20:.0f} MB of GPU memory, the "
        f"next gang's {second * 1e3:.2f} ms\n"
    )
    names = ("ours", "CuPy", "torch")
    head = ["operation", "a rank", "waited for", *(f"{name} ms" for name in names)]
    head += [*(f"{name} GB/s" for name in names), "ours / CuPy", "ours / torch", "spread"]
    rank.say(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    ratios = []
    for operation in ("allreduce", "all-to-all"):
        for size in given.sizes:
            ratios += rank.compare(operation, size, given.rounds)
    rank.through_the_host(min(GATED_MB, max(given.sizes)))
    rank.ours.leave()
    missed = [f"{name}: {ratio:.2f}" for name, ratio in ratios if ratio < GATE]
    if ratios:
        what = f"below {GATE:.0%} of torch: {', '.join(missed)}" if missed else "passed"
        rank.say(f"\nall results right; gate ({GATE:.0%} of torch from {GATED_MB} MB on): {what}")
    rank.torch.distributed.destroy_process_group()
    return len(missed) > 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 64, 1024], help="in MB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    return measure(given) if given.rank else launch(given)


if __name__ == "__main__":
    sys.exit(main())
