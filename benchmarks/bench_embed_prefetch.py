"""Trainings whose vectors are on the disk, with and without prefetch, where it matters.

    python -P benchmarks/bench_embed_prefetch.py [--folder .] [--scale 19] [--edge-factor 160]
    python -P benchmarks/bench_embed_prefetch.py --device cpu --scale 12 --edge-factor 16 --dim 64 \
        --negatives 64 --batch 2000

An R-MAT graph, Dot with 100 values in 8 partitions, three of which are in memory; times of each
epoch are of `penstock embed train`, the first epoch left out, which fills partitions and compiles.

With C seconds of training an epoch, I of swaps and s swaps, each swap hides behind the edges that
are trained meanwhile, h C at the least. Prefetch can be (1 + I/C) / (1 + exposed/C) times as fast,
which the schedule decides: most where I / s is h C, as theorem 3 says. How much a swap takes is
measured first, without prefetch; then the number of negatives is chosen for the ratios I / C of
--ratios, the first of which theorem 3 allows, and trainings with and without prefetch take turns.
"""

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from penstock import ClusterSpec, Graph, embed, generate
from penstock.partition.order import order
from penstock.workers.embed.schedule import Schedule


def hidden_shares(name, partitions):
    """Return the share of an epoch's edges that is trained during each swap of it."""
    schedule = Schedule(order(name, partitions), spread=True)
    return np.array(
        [
            sum(1 / share.of for share in step.during) / partitions**2 / len(step.evict)
            for step in schedule.steps(0)
            for _ in step.evict
        ]
    )


def best_ratio(shares, ratio):
    """Return how many times as fast prefetch can be where I is ``ratio`` times C."""
    exposed = np.maximum(0.0, ratio / len(shares) - shares).sum()
    return (1 + ratio) / (1 + exposed), 1 / (1 + exposed)


def train(graph, folder, given, negatives, *, prefetch):
    """Return what was measured of the epochs after the first."""
    cluster = ClusterSpec(cluster="threads", device=given.device)
    begun = time.perf_counter()
    report = embed.train(
        graph,
        folder,
        model="dot",
        dim=given.dim,
        negatives=negatives,
        batch=given.batch,
        lr=0.1,
        epochs=given.epochs,
        partitions=given.partitions,
        prefetch=prefetch,
        checkpoint_minutes=1000.0,
        cluster=cluster,
        quiet=True,
    )
    took = time.perf_counter() - begun
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    later = lines[1:]
    seconds = statistics.median(line["seconds"] for line in later)
    busy = statistics.median(line["seconds"] * line["utilization"] for line in later)
    shutil.rmtree(folder)
    trained = report.trained
    return {
        "seconds": seconds,
        "busy": busy,
        "exposed": trained.exposed_seconds / given.epochs,
        "rate": trained.bandwidth,
        "loss": trained.loss,
        "theorem": trained.theorem,
        "whole": took,
    }


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--scale", type=int, default=19)
    parser.add_argument("--edge-factor", type=int, default=160)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--negatives", type=int, default=1000, help="of the first measurement")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ratios", default="0.26,0.32", help="seconds of swaps / of training")
    parser.add_argument("--rounds", type=int, default=2, help="of each, in turns")
    given = parser.parse_args()
    shares, begun = hidden_shares("prefetch", given.partitions), time.perf_counter()
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    print(
        f"{given.partitions} partitions: {len(shares)} swaps an epoch, each beside "
        f"{shares.min():.4f} of its edges or more: theorem 3 holds up to I / C = "
        f"{len(shares) * shares.min():.3f}"
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        generate(
            "rmat",
            folder / "g",
            scale=given.scale,
            edge_factor=given.edge_factor,
            quiet=True,
        )
        graph = Graph.open(folder / "g")
        print(
            f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
            f"{time.perf_counter() - begun:.1f} s"
        )
        run = folder / "run"
        alone = train(graph, run, given, given.negatives, prefetch=False)
        ratio = alone["exposed"] / alone["busy"]
        print(
            f"{given.negatives:,} negatives: trains {alone['busy']:.3f} s an epoch, swaps "
            f"{alone['exposed']:.3f} s at {alone['rate'] / 1e9:.2f} GB/s: I / C = {ratio:.3f}\n\n"
            "| negatives | I / C | prefetch | s an epoch | trains | exposed, s | GB/s | times | "
            "possible | loss | whole, s |\n|" + "---|" * 11,
            flush=True,
        )
        points = {given.negatives: {False: [alone], True: []}}
        for wanted in map(float, given.ratios.split(",")):
            negatives = max(8, round(given.negatives * ratio / wanted / 8) * 8)
            points.setdefault(negatives, {False: [], True: []})
        for number in range(given.rounds):
            for negatives, found in points.items():
                for prefetch in (True, False) if number % 2 else (False, True):
                    if len(found[prefetch]) <= number:
                        found[prefetch].append(
                            train(graph, run, given, negatives, prefetch=prefetch)
                        )
        for negatives, found in points.items():
            report(negatives, found, shares)
    print(f"\n{time.perf_counter() - begun:.0f} s in all")
    return 0


def report(negatives, found, shares):
    """Print the rows of one number of negatives, of the median run each."""
    middle = {
        prefetch: sorted(runs, key=lambda one: one["seconds"])[(len(runs) - 1) // 2]
        for prefetch, runs in found.items()
    }
    without = middle[False]
    ratio = without["exposed"] / without["busy"]
    possible, utilization = best_ratio(shares, ratio)
    for prefetch, one in middle.items():
        cells = [
            f"{negatives:,}",
            f"{ratio:.3f}",
            "yes" if prefetch else "no",
            f"{one['seconds']:.3f}",
            f"{one['busy'] / one['seconds']:.1%}",
            f"{one['exposed']:.3f}",
            f"{one['rate'] / 1e9:.2f}",
            f"{without['seconds'] / one['seconds']:.2f}" if prefetch else "",
            f"{possible:.2f}, {utilization:.0%}" if prefetch else "",
            f"{one['loss']:.4f}",
            f"{one['whole']:.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"  {middle[True]['theorem']}")
    for prefetch, runs in found.items():
        times = ", ".join(f"{one['seconds']:.3f}" for one in runs)
        print(f"  {'with' if prefetch else 'without'}: {times} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
