r"""Training runs out of core, with and without prefetch, in cases in which it matters.

    python -P benchmarks/bench_embed_prefetch.py [--folder .] [--seconds 40]
    NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -P benchmarks/bench_embed_prefetch.py \
        --device cpu  # one core trains, which leaves another to requests and their sums
    python -P benchmarks/bench_embed_prefetch.py --count

An R-MAT graph, Dot with 100 values in 8 partitions, three of them in memory. Times are those of
epochs of `penstock embed train`, except the first, which fills partitions and compiles.

C: seconds of training per epoch; I: seconds of its s swaps. A swap hides behind the edges trained
meanwhile, at least h C. Prefetch can be (1 + I/C) / (1 + exposed/C) times as fast; the gain is
largest if I / s is h C, by theorem 3. So the disk decides the work: first the rate of the table's
requests is measured, and gives the size of the graph (--scale at most) with which everything fits
in --seconds; then runs without prefetch give the number of negatives for I / C = --ratio, and again
if a run deviates, because disks vary. Each run with prefetch is compared with the run without it
just before.

--count trains nothing: it counts the volume that orders of partitions and buffers move in an epoch.
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
from penstock.errors import UsageError
from penstock.partition.order import order
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule

# python -P leaves out the script's folder, which has the modules of this benchmark.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from storage_bandwidth import measure

TIMES, BUSY = 1.25, 0.9  # required if theorem 3 holds


def hidden_shares(name, partitions):
    """Return the share of an epoch's edges that is trained during each swap."""
    schedule = BucketSchedule(order(name, partitions))
    return np.array(
        [
            sum(1 / share.of for share in step.during) / partitions**2 / len(step.evict)
            for step in schedule.scheduled(0)
            for _ in step.evict
        ]
    )


def best_ratio(shares, ratio):
    """Return the largest possible gain of prefetch if I is ``ratio`` times C."""
    exposed = np.maximum(0.0, ratio / len(shares) - shares).sum()
    return (1 + ratio) / (1 + exposed), 1 / (1 + exposed)


def likely_best(shares):
    """Return the ratio I / C at which prefetch gains most while kernels train 93 % of the time."""
    ratios = [ratio for ratio in np.arange(0.05, 1.0, 0.005) if best_ratio(shares, ratio)[1] > 0.93]
    return float(max(ratios, key=lambda ratio: best_ratio(shares, ratio)[0]))


def train(graph, folder, given, negatives, *, prefetch):
    """Return the measurements of the epochs after the first."""
    begun = time.perf_counter()
    report = embed.train(
        graph,
        folder,
        model="dot",
        dim=given.dim,
        negatives=negatives,
        batch=given.batch,
        lr=0.01,
        corrupt=given.corrupt,
        epochs=given.epochs,
        partitions=given.partitions,
        prefetch=prefetch,
        checkpoint_minutes=1000.0,
        cluster=ClusterSpec(cluster="threads", device=given.device),
        quiet=True,
    )
    took = time.perf_counter() - begun
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(folder)
    found = {
        "seconds": statistics.median(line["seconds"] for line in lines[1:]),
        "busy": statistics.median(line["seconds"] * line["utilization"] for line in lines[1:]),
        "exposed": statistics.median(line["exposed_seconds"] for line in lines[1:]),
        "rate": report.trained.bandwidth,
        "loss": report.trained.loss,
        "whole": took,
        "negatives": negatives,
    }
    found["ratio"] = found["exposed"] / found["busy"]
    how = "with prefetch   " if prefetch else "without prefetch"
    print(
        f"  {negatives:,} negatives, {how}: {found['seconds']:.3f} s per epoch, trains "
        f"{found['busy']:.3f} s ({found['busy'] / found['seconds']:.1%}), waits "
        f"{found['exposed']:.3f} s at {found['rate'] / 1e9:.2f} GB/s, loss {found['loss']:.4f}, "
        f"{took:.1f} s in all; the report: {(report.trained.theorem or 'nothing').split(':')[0]}",
        flush=True,
    )
    return found


def negatives_for(ratio, runs):
    """Return the number of negatives for I / C = ``ratio``, by runs without prefetch."""
    wanted = statistics.median(one["exposed"] for one in runs) / ratio  # seconds of training
    (last, *before) = sorted(runs, key=lambda one: abs(one["busy"] - wanted))
    slope = last["busy"] / last["negatives"]
    others = [one for one in before if one["negatives"] != last["negatives"]]
    if others:  # times scatter, so two close to each other determine the slope poorly
        steep = last["busy"] - others[0]["busy"]
        steep /= last["negatives"] - others[0]["negatives"]
        slope = min(max(steep, slope / 2), slope)
    found = last["negatives"] + (wanted - last["busy"]) / slope
    return max(8, round(min(found, 4 * wanted / last["busy"] * last["negatives"]) / 8) * 8)


def scale_for(rate, ratio, swaps, given):
    """Return the size of a graph for which the epochs of seven runs fill about half of the time."""
    trains = 0.5 * given.seconds / (4 * given.epochs * (1 + ratio))
    nodes = rate * ratio * trains * given.partitions / (swaps * 2 * 8 * given.dim)
    return int(np.clip(np.log2(max(nodes, 1)), 10, given.scale))


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--scale", type=int, default=19, help="2 ** SCALE nodes at most")
    parser.add_argument("--edge-factor", type=float, help="[default: 160; on a CPU 0.5]")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, help="[default: 100,000; on a CPU 2,000]")
    parser.add_argument("--negatives", type=int, help="of the first [default: 4,000; on a CPU 64]")
    parser.add_argument(
        "--corrupt", choices=("tail", "both"), help="[default: both; on a CPU tail]"
    )
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ratio", type=float, help="seconds of swaps / of training")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of training runs at most")
    parser.add_argument("--seconds", type=float, default=40.0, help="in all, about")
    parser.add_argument(
        "--count", action="store_true", help="count the moved volume, and train nothing"
    )
    given = parser.parse_args()
    if given.count:
        return count()
    on_gpu = given.device == "gpu"
    given.edge_factor = given.edge_factor or (160 if on_gpu else 0.5)
    given.corrupt = given.corrupt or ("both" if on_gpu else "tail")
    given.batch = given.batch or (100_000 if on_gpu else 2000)
    given.negatives = given.negatives or (4000 if on_gpu else 64)
    shares, begun = hidden_shares("prefetch", given.partitions), time.perf_counter()
    limit = len(shares) * shares.min()
    ratio = given.ratio or min(likely_best(shares), 0.97 * limit)  # theorem 3 is to hold
    possible, utilization = best_ratio(shares, ratio)
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    print(
        f"{given.partitions} partitions: {len(shares)} swaps per epoch, each during "
        f"{shares.min():.4f} of its edges or more: theorem 3 holds up to I / C = {limit:.3f}; "
        f"with {ratio:.3f}, which is tried for, prefetch can be {possible:.2f} times as fast, and "
        f"train {utilization:.0%} of the time",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        rate = measure(folder, 64 << 20).exchange
        scale = scale_for(rate, ratio, len(shares), given)
        generate("rmat", folder / "g", scale=scale, edge_factor=given.edge_factor, quiet=True)
        graph = Graph.open(folder / "g")
        # No batch is larger than a mean bucket, and so than the largest.
        given.batch = min(given.batch, graph.num_edges // given.partitions**2)
        print(
            f"the disk exchanges {rate / 1e9:.2f} GB/s; {graph.num_nodes:,} nodes, "
            f"{graph.num_edges:,} edges; {time.perf_counter() - begun:.1f} s",
            flush=True,
        )
        run, alone, pairs = folder / "run", [], []

        def fits(count):
            longest = max((one["whole"] for one in alone), default=0.0)
            return time.perf_counter() - begun + count * longest < given.seconds

        train(graph, run, given, given.negatives // 8, prefetch=True)  # compiles, if needed
        negatives = given.negatives
        while not pairs or (len(pairs) < given.rounds and fits(2)):
            alone.append(train(graph, run, given, negatives, prefetch=False))
            close = 0.95 * ratio < alone[-1]["ratio"] < 1.03 * ratio
            better = negatives if close else negatives_for(ratio, alone)
            if better == negatives or not fits(3):
                prefetched = train(graph, run, given, negatives, prefetch=True)
                np.testing.assert_allclose(prefetched["loss"], alone[-1]["loss"], rtol=0.01)
                pairs.append((alone[-1], prefetched))
            negatives = better
        kept = report(pairs, shares, limit)
    print(f"\n{time.perf_counter() - begun:.0f} s in all")
    return 0 if kept else 1


def report(pairs, shares, limit):
    """Print one row per pair of training runs; return whether the requirements are kept."""
    held, busy = [], []
    print(
        "\n| negatives | I / C | theorem 3 | s per epoch, without | with | times | possible | "
        "kernels train, without | with | possible |\n|" + "---|" * 10
    )
    for without, prefetched in pairs:
        possible, utilization = best_ratio(shares, without["ratio"])
        cells = [
            f"{without['negatives']:,}",
            f"{without['ratio']:.3f}",
            "holds" if without["ratio"] <= limit else "does not hold",
            f"{without['seconds']:.3f}",
            f"{prefetched['seconds']:.3f}",
            f"{without['seconds'] / prefetched['seconds']:.2f}",
            f"{possible:.2f}",
            f"{without['busy'] / without['seconds']:.1%}",
            f"{prefetched['busy'] / prefetched['seconds']:.1%}",
            f"{utilization:.0%}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
        if without["ratio"] <= limit:
            busy.append(prefetched["busy"] / prefetched["seconds"])
            if possible >= TIMES:  # else the disk was too fast for it
                held.append(without["seconds"] / prefetched["seconds"])
    if not held:
        print(
            f"\nMISSED: in no pair did theorem 3 hold with {TIMES} times possible: I / C must "
            f"be between {TIMES - 1:.2f} and {limit:.3f}"
        )
        return False
    times, share = statistics.median(held), statistics.median(busy)
    kept = times >= TIMES and share >= BUSY
    print(
        f"\n{'kept' if kept else 'MISSED'}: with theorem 3 and {TIMES} times possible "
        f"({len(held)} of {len(pairs)} pairs) {times:.3f} times; with theorem 3 "
        f"({len(busy)} pairs) kernels train {share:.1%} ({BUSY:.0%})"
    )
    return kept


def count():
    """Print what orders of partitions move, in an epoch and of a table of all nodes."""
    print(
        "| partitions | in memory | order | states | partitions read | of the table | all edges "
        "trained during a swap | buckets during a swap, at least |\n|" + "---|" * 8
    )
    for partitions in (8, 12, 16, 32, 64):
        for name in ("prefetch", "beta", "cover"):
            try:
                made = order(name, partitions)
            except UsageError:  # cover: powers of four
                continue
            schedule = BucketSchedule(made)
            shares, read = 0.0, 0
            for step in schedule.scheduled(0):
                read += len(step.load)
                shares += sum(1 / share.of for share in step.during) if step.load else 0.0
            cells = [
                f"{partitions}",
                f"{len(made.states[0])}",
                name,
                f"{len(made.states)}",
                f"{read}",
                f"{read / partitions:.2f}",
                f"{shares / partitions**2:.0%}",
                f"{schedule.hiding:.2f}",
            ]
            print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
