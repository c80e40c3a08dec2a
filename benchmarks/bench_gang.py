"""Gangs: the start of a world, and the cost of a gang and of a message over plain mpi4py.

    python -P benchmarks/bench_gang.py [--quick] [--workers 4]

Raw mpi4py is Isend, Irecv and Waitall; both ways exchange the same arrays between the same two
ranks, in alternating rounds. Checksums of what each rank received must be those of what the other
draws. A time is the least of a run. The start of a world is compared with that of as many processes
that import mpi4py under mpiexec.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, alike, main
from ranks import communicator, launched

ROUNDS, GANGS = 40, 50
# Bytes, messages, repeats, whether one exchange is repeated, and the time of raw mpi4py over ours,
# measured with MPICH.
MESSAGES = {
    "8 B, one message": (8, 1, 2000, False, 0.68),
    "8 B, eight messages": (8, 8, 500, False, 0.95),
    "8 B, repeated": (8, 1, 2000, True, 2.1),
    "8 B, eight repeated": (8, 8, 500, True, 3.3),
    "64 kB, repeated": (1 << 16, 1, 500, True, 1.4),
    "64 MB both ways": (64 << 20, 1, 3, False, 1.03),
}


# What the two ranks do


def drawn(rank: int, size: int, messages: int) -> list[np.ndarray]:
    """Return what a rank sends."""
    random = np.random.default_rng(rank)
    return [random.integers(0, 255, size, np.uint8) for _ in range(messages)]


def checksum(arrays: list[np.ndarray]) -> int:
    return zlib.crc32(np.concatenate(arrays))


def exchange_times(comm, mine, size: int, messages: int, repeats: int, again: bool) -> dict:
    """Return the seconds of an exchange, raw and by Penstock, and checksums of what ranks get."""
    from mpi4py import MPI

    other = 1 - comm.rank
    sent = drawn(comm.rank, size, messages)
    came = [np.zeros(size, np.uint8) for _ in range(messages)]

    def raw() -> None:
        requests = [mine.Irecv(array, other, tag) for tag, array in enumerate(came)]
        requests += [mine.Isend(array, other, tag) for tag, array in enumerate(sent)]
        MPI.Request.Waitall(requests)

    def one_by_one() -> None:
        requests = [comm.irecv(array, other, tag) for tag, array in enumerate(came)]
        requests += [comm.isend(array, other, tag) for tag, array in enumerate(sent)]
        comm.wait(requests)

    exchange = comm.persistent(
        sends=[(array, other, tag) for tag, array in enumerate(sent)],
        receives=[(array, other, tag) for tag, array in enumerate(came)],
    )

    def repeated() -> None:
        exchange.start()
        exchange.wait()

    ours = repeated if again else one_by_one
    times, sums = {raw: [], ours: []}, {}
    for way in times:
        for array in came:
            array[:] = 0
        way()
        sums[way] = mine.allgather(checksum(came))
    for number in range(ROUNDS):
        for way in (raw, ours) if number % 2 else (ours, raw):
            mine.Barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                way()
            times[way].append((time.perf_counter() - start) / repeats)
    # The least is the cost of the code; the rest is other work of the machine.
    return {"raw": (min(times[raw]), sums[raw]), "ours": (min(times[ours]), sums[ours])}


def rank() -> None:
    """Be one of two ranks."""
    from penstock.workers.comm.mpi import load_mpi

    mine = load_mpi().COMM_WORLD.Dup()
    comm = communicator(mine, on_gpus=False)
    found = {name: exchange_times(comm, mine, *how[:4]) for name, how in MESSAGES.items()}
    if comm.rank == 0:
        # In one piece, between mpiexec's marks.
        sys.stdout.write(f"RESULT {json.dumps(found)}\n")


# What a client sees


@cache
def exchanged(number: int) -> dict[str, dict[str, Any]]:
    """Return the times and checksums of a run of two ranks."""
    out = launched(2, [__file__, "--rank"])
    line = next(line for line in out.splitlines() if "RESULT" in line)
    return json.loads(line.split("RESULT", 1)[1])


def message(name: str, side: str) -> Callable[[], Timed]:
    """Return a function that gives the time of the next run; a run has all messages."""
    runs = iter(range(1 << 30))
    return lambda: Timed(*exchanged(next(runs) % RUNS)[name][side])


RUNS = 4


def check_message(size: int, messages: int, values: dict[str, Any]) -> None:
    came = [checksum(drawn(1 - rank, size, messages)) for rank in range(2)]
    assert values["ours"] == values["mpi4py"] == came


def world(workers: int) -> Timed:
    from penstock import connect

    begun = time.perf_counter()
    with connect("mpi", workers=workers) as client:
        took = time.perf_counter() - begun
        return Timed(took, len(client.scheduler_info(n_workers=-1)["workers"]))


def bare_world(workers: int) -> int:
    code = "import distributed; from mpi4py import MPI; print('r', MPI.COMM_WORLD.size)"
    return launched(workers, ["-c", code]).count("r")


def gangs(client: Any, workers: int) -> list[int]:
    from penstock import gang

    return [sum(gang.run(client, lambda comm: comm.rank, ranks=workers)) for _ in range(GANGS)]


def tasks(client: Any, workers: int) -> list[int]:
    """Submit a task to every worker at once, as often as there are gangs."""
    names = list(client.scheduler_info(n_workers=-1)["workers"])
    found = []
    for _ in range(GANGS):
        some = [client.submit(int, n, workers=[w], pure=False) for n, w in enumerate(names)]
        found.append(sum(client.gather(some)))
    return found


def cases(given: argparse.Namespace) -> Iterator[Case]:
    from penstock import connect

    for name, (size, messages, _, _, ratio) in MESSAGES.items():
        sides = {"mpi4py": Side(message(name, "raw"), ratio)}
        check = partial(check_message, size, messages)
        yield Case(name, message(name, "ours"), check, sides, rounds=RUNS - 1)
    bare = Side(partial(bare_world, given.workers), None)
    start = partial(world, given.workers)
    yield Case(f"start of {given.workers} workers", start, alike, {"mpiexec": bare}, rounds=3)
    with connect("mpi", workers=given.workers) as client:
        plain = Side(partial(tasks, client, given.workers), None)
        ours = partial(gangs, client, given.workers)
        yield Case(f"{GANGS} empty gangs", ours, alike, {"tasks": plain}, rounds=3)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        rank()
    else:
        sys.exit(main(__doc__, cases, Option("--workers", 4, 2)))
