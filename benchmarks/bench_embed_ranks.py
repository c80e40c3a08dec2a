"""Training embeddings on several GPUs: speed relative to one GPU, and the shares of waits.

    python -P benchmarks/bench_embed_ranks.py [--ranks 1,2] [--triples 52000000] [--device gpu]
    python -P benchmarks/bench_embed_ranks.py --device cpu --triples 400000 --entities 20000 \
        --dim 32 --negatives 200 --batch 2000

The graph is a knowledge graph of `penstock generate kg`; the model is RotatE with 200 values and
2,000 negatives for tails and for heads. An epoch takes more than half a minute on one H100 or H200.
First a small graph is trained for some epochs on every number of ranks: losses must be nearly those
of one rank, and kernels are compiled. Then an epoch of the large graph is timed.

    trains      share of the epoch in which kernels train, the mean of ranks
    exchange    share in which blocks change hands
    waits       the rest: for other ranks, and for the host

The exit code is 1 if losses differ, or GPUs are slower than required.
"""

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from penstock import ClusterSpec, Graph, embed, generate

ASKED = {2: 1.7}  # times one GPU
APART = 0.03  # of losses, at most
SMALL_TRIPLES, SMALL_EPOCHS = 400_000, 4


class Memory:
    """The peak memory of any GPU, over all its processes, as reported by nvidia-smi."""

    def __init__(self):
        self.most, self._ended = 0, threading.Event()
        self._there = shutil.which("nvidia-smi") is not None

    def __enter__(self):
        if self._there:
            self._thread = threading.Thread(target=self._look)
            self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        if self._there:
            self._thread.join()

    def _look(self):
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not self._ended.wait(1.0):
            with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                said = subprocess.run(
                    command, capture_output=True, text=True, check=True, timeout=20
                )
                self.most = max(self.most, *map(int, said.stdout.split()))


def make(path, given, triples):
    """Write a graph of about this number of triples."""
    share = triples / given.triples
    generate(
        "kg",
        path,
        entities=max(1000, int(given.entities * share)),
        relations=given.relations if share == 1 else min(given.relations, 50),
        triples=triples,
        valid=0.0,
        test=0.0,
        quiet=True,
    )
    return Graph.open(path)


def train(graph, folder, ranks, given, epochs):
    """Train, and return the result and the seconds of the whole command."""
    alone = ranks == 1 and given.device == "cpu"
    cluster = ClusterSpec(
        cluster="threads" if alone else "mpi",
        device=given.device,
        **({} if alone else {"workers": ranks}),
    )
    begun = time.perf_counter()
    more = {} if given.partitions is None else {"partitions": given.partitions}
    report = embed.train(
        graph,
        folder,
        model=given.model,
        dim=given.dim,
        negatives=given.negatives,
        batch=given.batch,
        lr=given.lr,
        epochs=epochs,
        parts=ranks,
        checkpoint_minutes=1000.0,
        cluster=cluster,
        quiet=True,
        **more,
    )
    took = time.perf_counter() - begun
    shutil.rmtree(folder)
    return report.trained, took


def main():
    """Check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks, 1 first")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--folder", type=Path, help="folder of the graph and the runs")
    parser.add_argument("--entities", type=int, default=2_000_000)
    parser.add_argument("--relations", type=int, default=1000)
    parser.add_argument("--triples", type=int, default=52_000_000)
    parser.add_argument("--model", default="rotate")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--negatives", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--partitions", type=int, help="on the disk, three of a rank in memory")
    given = parser.parse_args()
    counts, kept = [int(n) for n in given.ranks.split(",")], True
    begun = time.perf_counter()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        small = make(folder / "small", given, min(SMALL_TRIPLES, given.triples))
        losses = {}
        most = 5000 if given.partitions is None else 500  # a batch is inside a bucket
        small_given = argparse.Namespace(**{**vars(given), "batch": min(given.batch, most)})
        for ranks in counts:
            trained, took = train(small, folder / "run", ranks, small_given, SMALL_EPOCHS)
            losses[ranks] = trained.loss
            apart = abs(trained.loss / losses[counts[0]] - 1)
            kept &= apart <= APART
            print(
                f"{small.num_edges:,} edges, {SMALL_EPOCHS} epochs on {ranks}: loss "
                f"{trained.loss:.4f}, {apart:.2%} from that of {counts[0]}; {took:.1f} s",
                flush=True,
            )
        start = time.perf_counter()
        graph = make(folder / "g", given, given.triples)
        print(
            f"\n{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, generated in "
            f"{time.perf_counter() - start:.1f} s; {given.model}, {given.dim} values, "
            f"{given.negatives:,} negatives, batches of {given.batch:,}\n\n"
            "| ranks | s per epoch | M edges/s | times | trains | exchange | waits | "
            "GB exchanged | loss | GB of a GPU | whole command, s |\n|" + "---|" * 11,
            flush=True,
        )
        first = None
        for ranks in counts:
            with Memory() as memory:
                trained, took = train(graph, folder / "run", ranks, given, given.epochs)
            seconds = trained.epoch_seconds
            first = first or (seconds, trained.loss)
            times = first[0] / seconds
            exchange = trained.exchange_seconds / given.epochs / seconds
            cells = [
                str(ranks),
                f"{seconds:.2f}",
                f"{trained.edges / seconds / 1e6:.2f}",
                f"{times:.2f}",
                f"{trained.utilization:.1%}",
                f"{exchange:.1%}",
                f"{1 - trained.utilization - exchange:.1%}",
                f"{trained.bytes_exchanged / 1e9:.1f}",
                f"{trained.loss:.4f}",
                f"{memory.most / 953.7:.1f}" if memory.most else "",
                f"{took:.1f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)
            apart = abs(trained.loss / first[1] - 1)
            if apart > APART:
                kept = False
                print(f"loss {apart:.1%} from that of one rank")
            if given.device == "gpu" and ranks in ASKED and counts[0] == 1:
                kept &= times >= ASKED[ranks]
                print(f"{ranks} GPUs are {times:.2f} times as fast; asked for: {ASKED[ranks]}")
    print(f"\n{time.perf_counter() - begun:.0f} s in all; {'kept' if kept else 'MISSED'}")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
