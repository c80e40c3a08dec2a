"""The cost of encryption: the start of a cluster, and transfers between workers and client.

    python -P benchmarks/bench_encryption.py [--kind local] [--starts 5] [--json]

Clusters of two workers with TLS and with --no-tls, in turn, after one of each that is not counted.
Sent data is compared before any timing. The exit code is 1 if the start of a cluster takes more
than 0.3 s longer: the median of the differences between neighbours.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np
from distributed import wait

from penstock import connect

MOST_SECONDS = 0.3  # the most that TLS may add to the start of a cluster
MIB = 1 << 20
TASKS, REPEATS = 100, 3


def drawn(mib: int) -> np.ndarray:
    """Return bytes that are equal in every process."""
    return np.random.default_rng(0).integers(0, 256, mib * MIB, np.uint8)


def seconds_of(call) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def start(kind: str, no_tls: bool) -> float:
    """Return the seconds until the workers of a cluster are connected."""
    begun = time.monotonic()
    with connect(kind, workers=2, no_tls=no_tls) as client:
        took = time.monotonic() - begun
        assert client.scheduler.address.startswith("tcp" if no_tls else "tls")
        assert client.submit(sum, [1, 2]).result() == 3
    return took


def transfers(kind: str, no_tls: bool) -> dict[str, float]:
    """Return medians of seconds by kind of message."""
    found = {}
    with connect(kind, workers=2, no_tls=no_tls) as client:
        first, second = client.scheduler_info(n_workers=-1)["workers"]
        kept = client.submit(drawn, 64, pure=False)
        np.testing.assert_array_equal(kept.result(), drawn(64))
        found["64 MiB to the client"] = statistics.median(
            seconds_of(kept.result) for _ in range(REPEATS)
        )
        times = []
        for _ in range(REPEATS):
            large = client.submit(np.ones, 256 * MIB, np.uint8, workers=[first], pure=False)
            wait(large)
            read = client.submit(len, large, workers=[second], pure=False)
            times.append(seconds_of(read.result))
            assert read.result() == 256 * MIB
            del large, read
        found["256 MiB from worker to worker"] = statistics.median(times)
        found["a task of nothing"] = statistics.median(
            seconds_of(client.submit(int, pure=False).result) for _ in range(TASKS)
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("local", "mpi"), default="local")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    starts = {no_tls: [] for no_tls in (False, True)}
    for number in range(given.starts + 1):
        for no_tls, seconds in starts.items():
            took = start(given.kind, no_tls)
            if number:  # the first loads libraries
                seconds.append(took)
    pairs = zip(starts[False], starts[True], strict=True)
    more = statistics.median(tls - plain for tls, plain in pairs)
    sent = [transfers(given.kind, no_tls) for no_tls in starts]
    medians = {"start": [statistics.median(seconds) for seconds in starts.values()]}
    medians |= {name: [one[name] for one in sent] for name in sent[0]}
    if given.json:
        print(json.dumps({"seconds": medians, "start": {"more": more, "most": MOST_SECONDS}}))
    else:
        print(f"{'':32}{'TLS':>10}{'--no-tls':>10}")
        for name, (tls, plain) in medians.items():
            print(f"{name:32}{tls:10.4f}{plain:10.4f} s")
        print(f"TLS adds {more:.3f} s to the start; at most {MOST_SECONDS} s")
    return int(more > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
