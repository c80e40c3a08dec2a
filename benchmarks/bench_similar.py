"""All neighbours by an index, against comparing all pairs: CPU time, and recall.

    python -P benchmarks/bench_similar.py [--quick] [--vectors 1000000] [--folder /scratch]

The vectors are drawn from a mixture of Gaussians: 100 of each centre, whose values have a standard
deviation of 1, and those of its vectors one of 0.5. ``penstock similar --all --approximate`` runs
on all of them; on a tenth as many it runs again, over vectors of which one in ten is replaced, with
the index of the first run. recall@10 of 1,024 ids must be 0.95, and what the report says of it
close. The exact search answers these queries, and its time is multiplied. Times are CPU seconds of
all threads.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, installed, main

import penstock
from penstock.kernels.cpu import neighbours

DIMENSION, K, ASKED = 128, 10, 1024
# The time of all pairs over that of the job, by the number of vectors.
AS_FAST = {1_000_000: 10.0}


def drawn(count: int, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return vectors of a mixture of Gaussians."""
    of = rng.integers(0, len(centres), count)
    return centres[of] + 0.5 * rng.standard_normal((count, DIMENSION), np.float32)


def approximate(source: Path, out: Path, index: Path | None) -> Timed:
    """Run the job."""
    begun = time.process_time()
    report = penstock.similar(
        source,
        k=K,
        approximate=True,
        cluster="threads",
        out=out,
        index=index,
        overwrite=True,
        quiet=True,
    )
    seconds = time.process_time() - begun
    table = pq.read_table(out, columns=["id", "neighbour"])
    ids, near = (table[name].to_numpy() for name in ("id", "neighbour"))
    return Timed(seconds, (ids, near, report.to_dict()["recall"]))


def exact(values: np.ndarray, asked: np.ndarray) -> Timed:
    """Return the neighbours of some, and the seconds of all."""
    with threadpool_limits(1):
        lengths = neighbours.norms(values)
        begun = time.process_time()
        found, _ = neighbours.nearest(
            values[asked], values, K, skip=asked[:, None], lengths=lengths
        )
        return Timed((time.process_time() - begun) * len(values) / len(asked), found)


def check(asked: np.ndarray, values: dict[str, Any]) -> dict[str, Any]:
    ids, near, reported = values["ours"]
    truth = values["all pairs"]
    first, last = (np.searchsorted(ids, asked, side) for side in ("left", "right"))
    same = [len(np.intersect1d(near[a:b], t)) for a, b, t in zip(first, last, truth, strict=True)]
    found = sum(same) / truth.size
    assert 0.95 <= found <= 1, f"recall@10 is {found:.4f}"
    assert abs(reported - found) < 0.03, f"recall@10 is {found:.4f}, the report says {reported:.4f}"
    return {"recall@10": found, "reported": reported}


def cases(given: argparse.Namespace) -> Iterator[Case]:
    yield from nights(given, given.replaced, ("new index", "a tenth replaced"))
    if given.vectors > given.replaced:
        yield from nights(given, given.vectors, ("new index",), rounds=1)


def nights(
    given: argparse.Namespace, count: int, names: Sequence[str], rounds: int | None = None
) -> Iterator[Case]:
    """Yield a case for each night, with the index of the night before."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(count // 100, 1), DIMENSION), np.float32)
    values = drawn(count, centres, rng)
    asked = np.sort(rng.choice(count, min(ASKED, count), replace=False))
    neighbours.nearest(values[:2], values[:100], K)  # compiled
    index: Path | None = None
    for name in names:
        title = f"{name}, {count:,} vectors"
        source, out = given.scratch / f"{title}.npy", given.scratch / title
        np.save(source, values)
        yield Case(
            title,
            partial(approximate, source, out, index),
            partial(check, asked),
            {"all pairs": Side(partial(exact, values, asked), AS_FAST.get(count), once=True)},
            (count, "vectors"),
            rounds,
        )
        index, moved = out, rng.choice(count, count // 10, replace=False)
        values = values.copy()
        values[moved] = drawn(len(moved), centres, rng)


if __name__ == "__main__":
    sizes = [Option("--vectors", 1_000_000, 20_000), Option("--replaced", 100_000, 20_000)]
    sys.exit(main(__doc__, cases, *sizes, needs=[installed("usearch")]))
