"""Speed of walks on CPUs, compared with PecanPy; on GPUs: bench_walk_gpu.py.

    python benchmarks/bench_walk.py [--pecanpy VENV/bin/python] [--scale 16] [--threads 2]

Every sampler and application is checked before it is timed, in the same run and with new seeds: all
steps are edges, and steps at hubs and small nodes have the exact chances of the naive twin. The
graph is R-MAT, edge factor 16, both ways, weights in [1, 5), five relations, without isolated
nodes. Penstock runs threads over the CPU kernel, in batches; PecanPy's SparseOTF gets the same
number of threads. It needs an older NumPy, so it may have a separate environment; only its walk is
timed, after compilation, without the conversion of numbers to names.
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
from scipy.stats import chi2

from penstock import Graph, generate
from penstock.kernels.cpu import walk as cpu
from penstock.kernels.naive.walk import factors, transition
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

TIMES_PECANPY, STEPS_PER_SECOND = 30, 10e6  # requirements, with two threads
BATCH = 4096  # walks that a thread makes at once
LENGTH = 20  # steps of Node2Vec
LEAST_CHANCE = 1e-6  # probability that a right sampler deviates as much
HUB = 20_000  # edges of the checked hub, or the nearest number

REJECTION = Sampler.REJECTION
NODE2VEC = WalkRules(
    LENGTH + 1,
    0,
    REJECTION,
    second_order=True,
    return_factor=0.5,
    far_factor=2.0,
    symmetric=True,
)
CASES = {
    "Node2Vec weighted, p=2, q=0.5, 20 steps": NODE2VEC,
    "the same, length 80": replace(NODE2VEC, length=80),
    "DeepWalk weighted, length 80": WalkRules(80, sampler=REJECTION),
    "the same, alias": WalkRules(80, sampler=Sampler.ALIAS),
    "the same, ITS": WalkRules(80, sampler=Sampler.ITS),
    "DeepWalk, length 80": WalkRules(80),
    "PPR weighted, stop 0.2": WalkRules(80, sampler=REJECTION, stop=0.2),
    "MetaPath weighted, 0-1-2-3-4": WalkRules(6, sampler=REJECTION, schema=(0, 1, 2, 3, 4)),
}
GATED = "Node2Vec weighted, p=2, q=0.5, 20 steps", "DeepWalk weighted, length 80"

PEER = """
import json, sys, time
import numpy as np
from numba_progress import ProgressBar
from pecanpy.pecanpy import SparseOTF
folder, length, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with np.load(folder + "/graph.npz") as graph:
    g = SparseOTF(p=2, q=0.5, random_state=1)
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


def make_graph(scale):
    """Return the rows of the graph."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g"
        generate("rmat", path, scale=scale, weights="1,5", relations=5, quiet=True)
        csr = Graph.open(path).csr()
        arrays = [np.array(each) for each in (csr.indptr, csr.indices, csr.weights, csr.relations)]
        return WalkGraph(*arrays)


def prepare(base, rules):
    """Return the rows that these rules walk on, with their tables."""
    rows = base if rules.sampler != Sampler.DIRECT else replace(base, weights=None)
    if rules.schema:
        rows = cpu.rows_by_relation(rows, np.array(rules.schema, np.int32))
    return cpu.tables(replace(rows, relations=None), rules)


def walk_on_threads(rows, rules, walks, starts, threads):
    """Return paths, made in batches."""

    def batch(first):
        some = slice(first, first + BATCH)
        return cpu.walk(rows, rules, walks[some], starts[some])

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(batch, range(0, len(walks), BATCH)))


def rates(base, rules, threads, runs=9):
    """Check walks of these rules, then return their steps per second, run by run."""
    draw, rows = np.random.default_rng(), prepare(base, rules)
    plain = base if rules.sampler != Sampler.DIRECT else replace(base, weights=None)

    def walk(walks, starts, length):
        seeded = replace(rules, length=length, seed=int(draw.integers(1 << 62)))
        return cpu.walk(rows, seeded, walks, starts)

    least, nodes, found = check_app(walk, plain, rules, draw), len(base.indptr) - 1, []
    for _ in range(runs + 1):
        seeded = replace(rules, seed=int(draw.integers(1 << 62)))
        order = draw.permutation(nodes).astype(base.indices.dtype)
        begun = time.perf_counter()
        parts = walk_on_threads(rows, seeded, np.arange(nodes), order, threads)
        taken = time.perf_counter() - begun
        found.append(sum(int((part[:, 1:] >= 0).sum()) for part in parts) / taken)
    return found[1:], least


def pecanpy(python, base, threads, runs=2):
    """Return PecanPy's steps per second, run by run."""
    with tempfile.TemporaryDirectory() as folder:
        columns = {name: getattr(base, name) for name in ("indptr", "indices", "weights")}
        np.savez(Path(folder) / "graph.npz", **columns)
        command = [python, "-P", "-c", PEER, folder, str(LENGTH), str(runs)]
        env = os.environ | {"NUMBA_NUM_THREADS": str(threads)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def check_app(walk, host, rules, draw):
    """Raise unless the walks are right; return the lowest probability of the observed counts.

    walk  (walks, starts, length) -> paths, all NumPy
    host  the rows in NumPy, one row per node
    draw  a NumPy generator
    """
    truth = replace(rules, sampler=Sampler.RESERVOIR)
    degrees = np.diff(host.indptr)
    paths = walk(numbers(20_000, draw), draw.integers(len(degrees), size=20_000), rules.length)
    check_edges(host, truth, paths)
    hub = int(np.argmin(np.abs(degrees - HUB)))
    small = draw.choice(np.flatnonzero((degrees > 1) & (degrees <= 20)), 3).tolist()
    middle = int(draw.choice(np.flatnonzero((degrees > 40) & (degrees <= 200))))
    chances = [check_step(walk, host, truth, node, -1, draw) for node in [hub, middle, *small]]
    if rules.second_order:
        for node in (hub, middle, small[0]):
            near = host.indices[host.indptr[node] : host.indptr[node + 1]]
            near = near[degrees[near] > 1] if (degrees[near] > 1).any() else near
            previous = int(near[np.argmin(np.abs(degrees[near] - 4))])
            chances.append(check_step(walk, host, truth, node, previous, draw))
    if rules.stop:
        lengths = np.bincount((paths >= 0).sum(1), minlength=rules.length + 1)[1:]
        expected = rules.stop * (1 - rules.stop) ** np.arange(rules.length)
        expected[-1] = (1 - rules.stop) ** (rules.length - 1)
        chances.append(chance(lengths, expected * len(paths)))
    if min(chances) < LEAST_CHANCE:
        raise AssertionError(f"a step has other chances than it should: {min(chances):.1e}")
    return min(chances)


def numbers(count, draw):
    """Return the numbers of this many walks, from anywhere."""
    return draw.integers(1 << 39) + np.arange(count, dtype=np.int64)


def check_edges(host, truth, paths):
    """Raise unless every step is an edge that it may take, and every walk continues while it
    can."""
    for step in range(1, paths.shape[1]):
        gone = paths[:, step] >= 0
        edges = edge_numbers(host, paths[gone, step - 1], paths[gone, step])
        assert (edges >= 0).all(), f"step {step} is not an edge"
        if truth.schema:
            assert (host.relations[edges] == truth.schema[step - 1]).all(), "another relation"
            continue
        assert truth.stop or gone.all(), "a walk ended early"
        assert not (gone & (paths[:, step - 1] < 0)).any(), "a walk continued after its end"


def edge_numbers(host, sources, targets):
    """Return the edge from each source to its target, or -1; rows ascend."""
    low, end = host.indptr[sources], host.indptr[sources + 1]
    high = end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        below = (low < high) & (host.indices[np.minimum(middle, end - 1)] < targets)
        low, high = np.where(below, middle + 1, low), np.where(below | (low >= high), high, middle)
    found = (low < end) & (host.indices[np.minimum(low, end - 1)] == targets)
    return np.where(found, low, -1)


def check_step(walk, host, truth, node, previous, draw):
    """Return the chance of the observed steps from a node, given the node before it, or -1."""
    edges, chances = transition(host, truth, node, previous, 1 if previous < 0 else 2)
    if not len(edges):
        return 1.0
    count, start, length = max(100_000, 50 * len(edges)), node, 2
    if previous >= 0:
        first, share = transition(host, truth, previous, -1, 1)
        count = int(count / share[host.indices[first] == node][0])
        start, length = previous, 3
    paths = walk(numbers(count, draw), np.full(count, start), length)
    came = paths[(paths[:, -2] == node) & (paths[:, -1] >= 0), -1]
    taken = edge_numbers(host, np.full(len(came), node), came)
    positions = np.searchsorted(edges, taken)
    assert (edges[np.minimum(positions, len(edges) - 1)] == taken).all(), "an edge without weight"
    seen, expected = np.bincount(positions, minlength=len(edges)), chances * len(came)
    # Many edges hide a wrong factor that few bins show.
    _, kind = np.unique(factors(host, truth, previous, host.indices[edges]), return_inverse=True)
    kinds = chance(np.bincount(kind, seen), np.bincount(kind, expected))
    return min(chance(seen, expected), kinds)


def chance(seen, expected):
    """Return the probability of this deviation of counts from the expected ones; rare ones are
    pooled."""
    rare = expected < 5
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    seen, expected = seen[expected > 0], expected[expected > 0]
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), max(len(seen) - 1, 1)))


def print_row(name, found, least=""):
    cells = [f"{rate / 1e6:.3g}" for rate in (np.median(found), min(found), max(found))]
    print(f"| {name} | {' | '.join(cells)} | {least} |", flush=True)
    return float(np.median(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=16, help="of the R-MAT graph")
    parser.add_argument("--threads", type=int, default=2, help="for Penstock and for PecanPy")
    parser.add_argument(
        "--pecanpy", default=sys.executable, metavar="PYTHON", help="a Python with pecanpy"
    )
    given = parser.parse_args()
    base = make_graph(given.scale)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"R-MAT scale {given.scale}, {len(base.indptr) - 1:,} nodes, {len(base.indices):,} edges; "
        f"{given.threads} threads\n"
    )
    print("| walks | M steps/s | slowest run | fastest run | least chance of the check |")
    print("|---|---|---|---|---|", flush=True)
    speed = {}
    for name, rules in CASES.items():
        found, least = rates(base, rules, given.threads)
        speed[name] = print_row(name, found, f"{least:.2g}")
    peer = print_row("PecanPy SparseOTF, 20 steps", pecanpy(given.pecanpy, base, given.threads))
    node2vec, deepwalk = (speed[name] for name in GATED)
    met = node2vec / peer >= TIMES_PECANPY, deepwalk >= STEPS_PER_SECOND
    words = ["met" if each else "missed" for each in met]
    print(f"\nNode2Vec {node2vec / peer:.0f} times PecanPy, {TIMES_PECANPY} asked for: {words[0]}")
    print(f"DeepWalk {deepwalk / 1e6:.1f} M steps/s, 10 asked for: {words[1]}")
    return not all(met)


if __name__ == "__main__":
    sys.exit(main())
