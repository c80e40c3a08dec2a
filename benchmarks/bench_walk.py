"""How fast walks are made, beside PecanPy on the CPU, FlowWalker and the floor on a GPU.

    python benchmarks/bench_walk.py cpu [--pecanpy VENV/bin/python]
    python benchmarks/bench_walk.py gpu [--scale 22] [--methods dprs zprs]
    python benchmarks/bench_walk.py gpus [--devices 2]

Every sampler and application is checked before it is timed, in the same run and with other seeds
each time: all steps are edges, and what is seen at hubs and small nodes has the exact chances of
the naive twin. The graph is ``penstock generate rmat --weights 1,5 --relations 5``: edge factor 16,
both ways, without isolated nodes.

cpu: threads over the CPU kernel, in batches, against PecanPy's SparseOTF with as many threads on
the same graph. PecanPy needs an older NumPy, so it may live in an environment of its own. What it
is timed for is the walk alone, compiled before, without turning numbers into names.
gpu, gpus: see bench_walk_gpu.py.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench_walk_shared import APPS, check_app, make_graph, prepare

from penstock.kernels.cpu import walk as cpu
from penstock.kernels.walk_rules import Rules, Sampler

TIMES_PECANPY, STEPS_PER_SECOND = 30, 10e6  # what is asked for, with two threads
BATCH = 4096  # walks that a thread makes at once
LENGTH = 20  # steps of Node2Vec

PEER = """
import json, sys, time
import numpy as np
from numba_progress import ProgressBar
from pecanpy.pecanpy import SparseOTF
folder, length, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with np.load(folder + "/graph.npz") as graph:
    g = SparseOTF(p=2, q=0.5, workers=2, random_state=1)
    g.set_node_ids([str(v) for v in range(len(graph["indptr"]) - 1)])
    g.indptr = graph["indptr"].astype(np.uint32)
    g.indices = graph["indices"].astype(np.uint32)
    g.data = graph["weights"].astype(np.float32)
move, alone = g.get_move_forward(), g.get_has_nbrs()
starts = np.random.default_rng(0).permutation(g.num_nodes).astype(np.uint32)
rates = []
for run in range(runs + 1):
    some = starts if run else starts[:64]
    begun = time.perf_counter()
    with ProgressBar(total=len(some), disable=True) as bar:
        paths = g._random_walks(len(some), length, 1, some, alone, move, bar)
    steps = int((paths[:, -1].astype(int) - 1).sum())
    rates.append(steps / (time.perf_counter() - begun))
print(json.dumps(rates[1:]))
"""


def walk_on_threads(rows, rules, walks, starts, threads):
    """Return paths, made in batches."""

    def batch(first):
        some = slice(first, first + BATCH)
        return cpu.walk(rows, rules, walks[some], starts[some])

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batch, range(0, len(walks), BATCH)))


def rates(base, rules, threads, runs=5):
    """Check walks of these rules, then return their steps a second, run by run."""
    draw = np.random.default_rng()

    def walk(walks, starts, length):
        # A thread alone makes the same walks.
        return cpu.walk(rows, replace(rules, length=length), walks, starts)

    rows = prepare(cpu, base, rules)
    least = check_app(walk, base, rules, draw)
    nodes = len(base.indptr) - 1
    found = []
    for _ in range(runs + 1):
        seeded = replace(rules, seed=int(draw.integers(1 << 62)))
        order = draw.permutation(nodes).astype(base.indices.dtype)
        begun = time.perf_counter()
        parts = walk_on_threads(rows, seeded, np.arange(nodes), order, threads)
        taken = time.perf_counter() - begun
        found.append(sum(int((part[:, 1:] >= 0).sum()) for part in parts) / taken)
    return found[1:], least


def pecanpy(python, base, threads, runs=2):
    """Return PecanPy's steps a second, run by run."""
    with tempfile.TemporaryDirectory() as folder:
        columns = {name: getattr(base, name) for name in ("indptr", "indices", "weights")}
        np.savez(Path(folder) / "graph.npz", **columns)
        command = [python, "-P", "-c", PEER, folder, str(LENGTH), str(runs)]
        env = os.environ | {"NUMBA_NUM_THREADS": str(threads)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def on_cpu(given):
    """Print the table of the CPU; return whether a gate was missed."""
    base = make_graph(given.scale or 16)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"R-MAT scale {given.scale or 16}, {len(base.indptr) - 1:,} nodes, "
        f"{len(base.indices):,} edges; {given.threads} threads\n"
    )
    node2vec = replace(APPS[1].rules, length=LENGTH + 1, sampler=Sampler.REJECTION)
    cases = {
        "Node2Vec weighted, p=2, q=0.5, 20 steps": node2vec,
        "DeepWalk weighted, length 80": Rules(80, sampler=Sampler.REJECTION),
        "DeepWalk weighted, alias": Rules(80, sampler=Sampler.ALIAS),
        "DeepWalk weighted, ITS": Rules(80, sampler=Sampler.ITS),
        "DeepWalk, length 80": Rules(80),
        "PPR, stop 0.2": replace(APPS[2].rules, sampler=Sampler.REJECTION),
        "MetaPath 0-1-2-3-4": replace(APPS[3].rules, sampler=Sampler.REJECTION),
    }
    print("| walks | M steps/s | slowest run | fastest run | least chance of the check |")
    print("|---|---|---|---|---|", flush=True)
    medians = []
    for name, rules in cases.items():
        columns = base if rules.sampler != Sampler.DIRECT else replace(base, weights=None)
        found, least = rates(columns, rules, given.threads)
        medians.append(float(np.median(found)))
        print_row(name, found, f"{least:.2g}")
    peer = pecanpy(given.pecanpy, base, given.threads)
    print_row("PecanPy SparseOTF, 20 steps", peer, "")
    ratio = medians[0] / float(np.median(peer))
    met = ratio >= TIMES_PECANPY, medians[1] >= STEPS_PER_SECOND
    words = ["met" if each else "missed" for each in met]
    print(f"\nNode2Vec {ratio:.0f} times PecanPy, {TIMES_PECANPY} asked for: {words[0]}")
    print(f"DeepWalk {medians[1] / 1e6:.1f} M steps/s, 10 asked for: {words[1]}")
    return not all(met)


def print_row(name, found, least):
    cells = [f"{rate / 1e6:.3g}" for rate in (np.median(found), min(found), max(found))]
    print(f"| {name} | {' | '.join(cells)} | {least} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", choices=["cpu", "gpu", "gpus"])
    parser.add_argument("--scale", type=int, help="of the graph (default: cpu 16, else 22)")
    parser.add_argument("--threads", type=int, default=2, help="cpu: for ours and for PecanPy")
    parser.add_argument(
        "--pecanpy", default=sys.executable, metavar="PYTHON", help="cpu: one that has pecanpy"
    )
    parser.add_argument(
        "--methods", nargs="+", default=[], choices=["lanes", "dprs", "zprs"],
        help="gpu: reservoir's variants to time beside what it takes itself",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=110, help="gpu, gpus: begin no row later (default 110)"
    )
    parser.add_argument("--devices", type=int, default=2, help="gpus: how many")
    given = parser.parse_args()
    if given.where == "cpu":
        return on_cpu(given)
    import bench_walk_gpu

    return bench_walk_gpu.main(given)


if __name__ == "__main__":
    sys.exit(main())
