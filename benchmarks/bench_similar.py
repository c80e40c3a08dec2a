"""All neighbours by an index, against comparing all pairs: CPU time, and recall.

    python -P benchmarks/bench_similar.py [--vectors 1000000] [--folder /scratch]

The vectors are drawn from a mixture of Gaussians: 100 of each centre, whose values have a standard
deviation of 1, and those of its vectors one of 0.5. ``penstock similar --all --approximate`` runs
on all of them, then again over vectors of which one in ten is replaced, with the index of the first
run. The exact search answers 1,024 of the queries, whose time is multiplied. Times are CPU seconds
of all threads, so other programs that run at the same time matter less. The run fails if the first
one takes more than a tenth of the exact search, or recall@10 of 1,024 ids is below 0.95.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import penstock
from penstock.kernels.cpu import neighbours

DIMENSION, K, EXACT = 128, 10, 1024


def drawn(count: int, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return vectors of a mixture of Gaussians."""
    of = rng.integers(0, len(centres), count)
    return centres[of] + 0.5 * rng.standard_normal((count, DIMENSION), np.float32)


def approximate(folder: Path, values: np.ndarray, **given: object) -> tuple[dict, float, float]:
    """Run the job; return its report, CPU seconds, and seconds."""
    np.save(folder / "x.npy", values)
    begun, wall = time.process_time(), time.perf_counter()
    report = penstock.similar(folder / "x.npy", k=K, approximate=True, cluster="threads", **given)
    return report.to_dict(), time.process_time() - begun, time.perf_counter() - wall


def recall(out: Path, truth: np.ndarray, asked: np.ndarray) -> float:
    """Return the share of the exact neighbours that an output has."""
    table = pq.read_table(out, columns=["id", "neighbour"])
    ids, near = (table[name].to_numpy() for name in ("id", "neighbour"))
    first = np.searchsorted(ids, asked)
    last = np.searchsorted(ids, asked, "right")
    same = [len(np.intersect1d(near[a:b], t)) for a, b, t in zip(first, last, truth, strict=True)]
    return sum(same) / truth.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--folder", default=None, help="output folder (default: a temporary one)")
    given = parser.parse_args()
    count, rng = given.vectors, np.random.default_rng(0)
    centres = rng.standard_normal((max(count // 100, 1), DIMENSION), np.float32)
    values = drawn(count, centres, rng)
    asked = np.sort(rng.choice(count, min(EXACT, count), replace=False))
    lengths = neighbours.norms(values)

    def exact(values: np.ndarray) -> tuple[np.ndarray, float]:
        with threadpool_limits(1):
            begun = time.process_time()
            skip = asked[:, None]
            found, _ = neighbours.nearest(values[asked], values, K, skip=skip, lengths=lengths)
            return found, (time.process_time() - begun) * count / len(asked)

    neighbours.nearest(values[:2], values[:100], K)  # compiled
    truth, all_pairs = exact(values)
    print(f"{count:,} x {DIMENSION}, {os.cpu_count()} cores\n")
    print("| run | CPU s | share of exact | recall@10 | reported | index s | kept | s |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| exact, {len(asked):,} queries scaled | {all_pairs:,.0f} | 1 | 1 | | | | |", flush=True
    )
    failed = []
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, index = Path(name), None
        for night in ("new index", "a tenth replaced"):
            out = folder / night.replace(" ", "-")
            report, cpu, wall = approximate(folder, values, out=out, index=index)
            found = recall(out, truth, asked)
            print(
                f"| {night} | {cpu:,.0f} | {cpu / all_pairs:.3f} | {found:.4f} "
                f"| {report['recall']:.4f} | {report['seconds_by_step']['index']:,.0f} "
                f"| {report['index']['kept']:,} | {wall:,.0f} |",
                flush=True,
            )
            if found < 0.95 or cpu > all_pairs / 10:
                failed.append(night)
            if index is None:
                index, moved = out, rng.choice(count, count // 10, replace=False)
                values[moved] = drawn(len(moved), centres, rng)
                lengths = neighbours.norms(values)
                truth, _ = exact(values)
    if failed:
        sys.exit(f"slower than a tenth of exact, or below a recall of 0.95: {', '.join(failed)}")


if __name__ == "__main__":
    main()
