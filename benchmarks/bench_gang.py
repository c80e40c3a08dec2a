"""Gangs: the start of a world, and the cost of a gang and of a message over plain mpi4py.

    python -P benchmarks/bench_gang.py [--workers 4] [--json]

Raw mpi4py is Isend, Irecv and Waitall; both ways exchange the same arrays between the same two
ranks, in alternating rounds, after every result was checked. The exit code is 1 if a promise is
broken.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

PROMISES = {  # what is measured: its unit, and the most it may be
    "ready": ("s", 5.0),
    "round trip": ("ms", 50.0),
    "shutdown": ("s", 5.0),
    "8 B, repeated": ("ratio", 1.05),
    "8 B, eight repeated": ("ratio", 1.05),
    "64 kB, repeated": ("ratio", 1.05),
    "64 MB both ways": ("ratio", 1 / 0.95),
}
STARTS, GANGS = 3, 50
ROUNDS = 40


# What the two ranks do


def exchange_times(comm, mine, size: int, messages: int, repeats: int, again: bool) -> dict:
    """Return the seconds of an exchange, raw and by Penstock, checked on fresh data first."""
    from mpi4py import MPI

    other = 1 - comm.rank
    random = np.random.default_rng(comm.rank)
    theirs = np.random.default_rng(other)
    sent = [random.integers(0, 255, size, np.uint8) for _ in range(messages)]
    wanted = [theirs.integers(0, 255, size, np.uint8) for _ in range(messages)]
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
    times = {raw: [], ours: []}
    for way in times:
        for array in came:
            array[:] = 0
        way()
        for array, right in zip(came, wanted, strict=True):
            assert np.array_equal(array, right), way.__name__
    for number in range(ROUNDS):
        for way in (raw, ours) if number % 2 else (ours, raw):
            mine.Barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                way()
            times[way].append((time.perf_counter() - start) / repeats)
    # The least is the cost of the code; the rest is other work of the machine.
    return {
        "raw": min(times[raw]),
        "ours": min(times[ours]),
        "raw median": statistics.median(times[raw]),
        "ours median": statistics.median(times[ours]),
    }


def rank() -> None:
    """Be one of two ranks."""
    from penstock.workers.comm.mpi import load_mpi

    mpi = load_mpi()
    from penstock.workers.comm.communicator import Communicator
    from penstock.workers.comm.wait import Waiter

    mine = mpi.COMM_WORLD.Dup()
    comm = Communicator(mine.Dup(), Waiter(), wait_timeout=60)
    found = {
        "8 B, one message": exchange_times(comm, mine, 8, 1, 2000, False),
        "8 B, eight messages": exchange_times(comm, mine, 8, 8, 500, False),
        "8 B, repeated": exchange_times(comm, mine, 8, 1, 2000, True),
        "8 B, eight repeated": exchange_times(comm, mine, 8, 8, 500, True),
        "64 kB, repeated": exchange_times(comm, mine, 1 << 16, 1, 500, True),
        "64 MB both ways": exchange_times(comm, mine, 64 << 20, 1, 3, False),
    }
    if comm.rank == 0:
        sys.stdout.write(f"RESULT {json.dumps(found)}\n")  # in one piece, between mpiexec's marks


def messages() -> tuple[dict, str]:
    """Return the measurements of two ranks, and their MPI."""
    from penstock.cluster.mpi.mpiexec import (
        find_launcher,
        launch_command,
        launch_environment,
        loaded_library,
    )

    library = loaded_library()
    launcher = find_launcher(None, library)
    program = [sys.executable, "-P", __file__, "--rank"]
    done = subprocess.run(
        launch_command(launcher, program, ranks=2, hosts=None),
        env=launch_environment(launcher, os.environ, root=os.geteuid() == 0),
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if "RESULT" in line)
    return json.loads(line.split("RESULT", 1)[1]), library.description


# What a client sees


def gangs(workers: int) -> dict:
    """Return the seconds until ready, of an empty gang, and of closing."""
    from penstock import connect, gang

    found = {"ready": [], "round trip": [], "shutdown": []}
    for number in range(STARTS):
        start = time.perf_counter()
        with connect("mpi", workers=workers) as client:
            found["ready"].append(time.perf_counter() - start)
            if number == 0:
                for gone in range(GANGS + 3):
                    start = time.perf_counter()
                    answer = gang.run(client, lambda comm: comm.rank, ranks=workers)
                    if gone >= 3:  # the first ones import and compile
                        found["round trip"].append(time.perf_counter() - start)
                    assert answer == list(range(workers))
            start = time.perf_counter()
        found["shutdown"].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank()
        return
    times, library = messages()
    seen = gangs(options.workers)
    values = {
        "ready": seen["ready"],
        "round trip": 1e3 * seen["round trip"],
        "shutdown": seen["shutdown"],
        **{name: pair["ours"] / pair["raw"] for name, pair in times.items()},
    }
    broken = [name for name, (_, most) in PROMISES.items() if values[name] > most]
    if options.json:
        print(json.dumps({"mpi": library, "values": values, "messages": times}, indent=1))
        sys.exit(bool(broken))
    print(f"{library}, {options.workers} workers\n")
    print(f"{'what':<22}{'raw mpi4py':>14}{'penstock':>14}{'ratio':>8}   promised")
    for name, pair in times.items():
        more = 1e6 * (pair["ours"] - pair["raw"])
        promise = f"<= {PROMISES[name][1]:.3f}" if name in PROMISES else f"{more:+.2f} us"
        print(
            f"{name:<22}{1e6 * pair['raw']:>11.2f} us{1e6 * pair['ours']:>11.2f} us"
            f"{values[name]:>8.3f}   {promise}"
        )
    for name in ("ready", "round trip", "shutdown"):
        unit, most = PROMISES[name]
        print(f"{name:<36}{values[name]:>11.2f} {unit:<2}{'':>8}   <= {most:g} {unit}")
    for name in broken:
        print(f"BROKEN: {name}", file=sys.stderr)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
