"""Training on several ranks: the same curve as on one, and the hidden share of communication.

    python -P benchmarks/bench_gnn_distributed.py [--ranks 1,2,4] [--epochs 30] [--rounds 15]
    python -P benchmarks/bench_gnn.py write amazon-like g
    python -P benchmarks/bench_gnn_distributed.py --graph g --device gpu --ranks 1,2,4 \
        [--method random] [--ways plain]

The graph is a block model (153,064 nodes, 7.7 M edges, 100 features, 47 classes), cut by METIS,
with a share of edges between blocks; or your own graph. The model is a GCN of 3 layers, hidden 32.
Curves are compared epoch by epoch, with and without dropout (--ways). Graphs with random edges have
no better parts than random ones, which --method random makes faster.

After the plain training, --rounds rounds of epochs measure the hidden share, like --measure-overlap
of penstock gnn train (see docs/gnn.md); medians, and quartiles in brackets. The exit code is 1 if a
promise is broken. With more ranks than cores only the curves are meaningful.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np

from penstock import ClusterSpec, Graph, generate, gnn, partition_graph

LEAST_AGREEMENT = 1e-4
SPEEDUPS = {2: 1.7, 4: 3.0}  # of GPUs
DEGREE = 50.5
NOISE = 100  # of features, so that losses, compared relatively, stay far from 0


def make_graph(path, outside, nodes):
    """Write a block model; ``outside`` is the share of edges that lead to other blocks."""
    degrees = {"degree_inside": DEGREE * (1 - outside), "degree_outside": DEGREE * outside}
    generate("sbm", path, nodes=nodes, blocks=47, width=100, noise=NOISE, quiet=True, **degrees)
    return Graph.open(path)


def train(graph, run, ranks, device, epochs, **options):
    """Train, and return the losses of all epochs with the result of the run."""
    alone = ranks == 1 and device != "gpu"
    kind = "threads" if alone else "mpi"
    workers = {} if alone else {"workers": ranks}
    cluster = ClusterSpec(cluster=kind, device=device, **workers)
    report = gnn.train(
        graph,
        run,
        layers=3,
        hidden=32,
        epochs=epochs,
        parts=ranks,
        evaluate_every=epochs,
        checkpoint_epochs=0,
        checkpoint_minutes=0,
        cluster=cluster,
        **options,
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return np.array([line["train"]["loss"] for line in lines]), report.trained


def quartiles(values, how):
    """Return a median, and both quartiles in brackets."""
    lower, middle, upper = (format(value, how) for value in values)
    return f"{middle} ({lower} to {upper})"


def compare(graph, folder, counts, given):
    """Print the table of a graph; return whether the promises are kept."""
    print(
        "| ranks | cut | ghosts per node | epoch ms | exposed ms | whole ms | hidden | "
        "curves differ | with dropout |\n|" + "---|" * 9,
        flush=True,
    )
    first, last, kept, ways_of_rows = {}, {}, True, {}
    for ranks in counts:
        cut = ghosts = 0.0
        if ranks > 1 and not (graph.path / f"partition/k{ranks}").exists():
            partition_graph(graph, k=ranks, method=given.method, quiet=True)
        if ranks > 1:
            about = json.loads((graph.path / f"partition/k{ranks}/partition.json").read_text())
            ghosts = sum(part["ghosts"] for part in about["parts"]) / graph.num_nodes
            cut = sum(part["cut"] for part in about["parts"]) / graph.num_edges
        ways = {"plain": {"dropout": 0.0}, "dropout": {}}
        if ranks > 1:
            ways["plain"]["measure_overlap"] = given.rounds
        ways = {name: options for name, options in ways.items() if name in given.ways}
        found = {}
        for name, options in ways.items():
            run = folder / f"run-{ranks}-{name}"
            found[name] = train(graph, run, ranks, given.device, given.epochs, **options)
        took = {name: 1e3 * trained.epoch_seconds for name, (_, trained) in found.items()}
        apart = {}
        for name in {"plain", "dropout"} & set(ways):
            losses = found[name][0]
            one = first.setdefault(name, losses)
            apart[name] = float(np.max(np.abs(losses - one) / np.abs(one)))
        cells = [str(ranks), f"{cut:.1%}", f"{ghosts:.2f}", f"{took['plain']:.1f}"]
        overlap = found["plain"][1].overlap
        if overlap is None:
            cells += ["", "", ""]
        else:
            ways_of_rows[ranks] = overlap["transport"]
            for name in ("exposed", "whole"):
                cells.append(quartiles([1e3 * value for value in overlap[name]], ".2f"))
            share = overlap["hidden"]
            cells.append("too little to tell" if share is None else quartiles(share, ".0%"))
        if ranks == 1:
            first["ms"] = took["plain"]
        cells += [f"{apart[name]:.1e}" if name in apart else "" for name in ("plain", "dropout")]
        print(f"| {' | '.join(cells)} |", flush=True)
        last[ranks] = float(found["plain"][0][-1])
        kept &= max(apart.values()) <= LEAST_AGREEMENT
        if given.device == "gpu" and ranks in SPEEDUPS and "ms" in first:
            faster = first["ms"] / took["plain"]
            kept &= faster >= SPEEDUPS[ranks]
            print(f"{ranks} GPUs are {faster:.2f} times as fast, {SPEEDUPS[ranks]} asked for")
    for ranks, by in ways_of_rows.items():
        print(f"{ranks} ranks: rows by {by['rows']}, sums by {by['sums']}")
    print(f"\nloss of the last epoch: {', '.join(f'{v:.7g}' for v in last.values())}")
    return kept


def main():
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks, 1 first")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=153_064, help="of block models")
    parser.add_argument("--outside", default="0.02,0.2", help="shares of edges to other blocks")
    parser.add_argument("--graph", type=Path, help="a graph to train on, in place of block models")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--method", default="auto", help="of the partition")
    parser.add_argument("--ways", default="plain,dropout", help="some of these; plain always")
    parser.add_argument("--rounds", type=int, default=15, help="that measure the hidden share")
    given = parser.parse_args()
    given.ways = {"plain", *given.ways.split(",")}
    counts, kept = [int(n) for n in given.ranks.split(",")], True
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        for share in [None] if given.graph else given.outside.split(","):
            folder = Path(name) / str(share)
            folder.mkdir()
            if share is None:
                graph = Graph.open(given.graph)
            else:
                graph = make_graph(folder / "g", float(share), given.nodes)
                print(f"\n{float(share):.0%} of the edges lead to other blocks", end="")
            print(f"\n{graph.num_nodes:,} nodes, {graph.num_edges:,} edges\n")
            kept &= compare(graph, folder, counts, given)
    words = "kept" if kept else "BROKEN"
    print(f"\ncurves within {LEAST_AGREEMENT:g} of one rank's: {words}")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
