"""The cost of encryption: the start of a cluster, and transfers between workers and client.

    python -P benchmarks/bench_encryption.py [--quick] [--kind mpi]

Clusters of two workers with TLS and with --no-tls, in turn. What is sent is compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, wait

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, main

from penstock import connect

MIB = 1 << 20


def started(kind: str, no_tls: bool) -> Timed:
    """Return the seconds until the workers of a cluster are connected."""
    begun = time.perf_counter()
    with connect(kind, workers=2, no_tls=no_tls) as client:
        took = time.perf_counter() - begun
        return Timed(
            took, (client.scheduler.address.partition(":")[0], client.submit(sum, [1, 2]).result())
        )


def check_start(values: dict[str, Any]) -> None:
    assert values["--no-tls"] == ("tcp", 3)
    assert values["ours"] == ("tls", 3)


def drawn(mib: int) -> np.ndarray:
    """Return bytes that are equal in every process."""
    return np.random.default_rng(0).integers(0, 256, mib * MIB, np.uint8)


def to_client(client: Client, kept: Any) -> np.ndarray:
    return kept.result()


def to_worker(client: Client, kept: Any) -> Timed:
    """Send bytes from a worker to the other."""
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    large = client.submit(np.ones, 256 * MIB, np.uint8, workers=[first], pure=False)
    wait(large)
    begun = time.perf_counter()
    size = client.submit(len, large, workers=[second], pure=False).result()
    return Timed(time.perf_counter() - begun, size)


def nothing(client: Client, kept: Any) -> int:
    return sum(client.submit(int, pure=False).result() for _ in range(100))


def check_sent(right: Any, values: dict[str, Any]) -> None:
    for value in values.values():
        np.testing.assert_array_equal(value, right)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    plain = Side(partial(started, given.kind, True), 0.89)
    yield Case("start", partial(started, given.kind, False), check_start, {"--no-tls": plain})
    with ExitStack() as stack:
        clients = {}
        for no_tls in (False, True):
            client = stack.enter_context(connect(given.kind, workers=2, no_tls=no_tls))
            clients[no_tls] = client, client.submit(drawn, 64, pure=False)
        for name, send, right, ratio in (
            ("64 MiB to the client", to_client, drawn(64), 0.39),
            ("256 MiB from worker to worker", to_worker, 256 * MIB, 0.35),
            ("100 tasks of nothing", nothing, 0, 0.99),
        ):
            ours, theirs = (partial(send, *clients[no_tls]) for no_tls in (False, True))
            yield Case(name, ours, partial(check_sent, right), {"--no-tls": Side(theirs, ratio)})


if __name__ == "__main__":
    sys.exit(main(__doc__, cases, Option("--kind", "local", "local", "of clusters: local, mpi")))
