"""Speed of walks on CPUs, compared with PecanPy and with gathering; on GPUs: bench_walk_gpu.py.

    python -P benchmarks/bench_walk.py [--quick] [--peers VENV/bin/python] [--threads 2]

Every sampler and application is checked before it is timed, in the same run and with new seeds: all
steps are edges, and steps at hubs and small nodes have the exact chances of the naive twin. The
graph is R-MAT, edge factor 16, both ways, weights in [1, 5), five relations, without isolated
nodes. Penstock runs threads over the CPU kernel, in batches. PecanPy gets the same number of
threads, and walks the same way: SparseOTF for node2vec, PreCompFirstOrder (alias tables) and
FirstOrderUnweighted for DeepWalk. It needs an older NumPy, so it may have a separate environment;
only its walk is timed, after compilation and tables, without the conversion of numbers to names.
The floor of a step is one number of a random edge, gathered by NumPy, divided by the threads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, by_peer, clock, in_peers, main, tampered

from penstock import Graph, generate
from penstock.kernels.cpu import walk as cpu
from penstock.kernels.naive.walk import factors, transition
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

GATHERS = 32
BATCH = 4096  # walks that a thread makes at once
LEAST_CHANCE = 1e-6  # probability that a right sampler deviates as much
HUB = 20_000  # edges of the checked hub, or the nearest number

REJECTION = Sampler.REJECTION
NODE2VEC = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0, "symmetric": True}
RULES = {
    "deepwalk": WalkRules(80, sampler=REJECTION),
    "ppr": WalkRules(80, sampler=REJECTION, stop=0.2),
    "node2vec": WalkRules(80, sampler=REJECTION, **NODE2VEC),
    "metapath": WalkRules(6, sampler=REJECTION, schema=(0, 1, 2, 3, 4)),
}
OTF, ALIAS, UNWEIGHTED = "SparseOTF", "PreCompFirstOrder", "FirstOrderUnweighted"
# The rules, PecanPy's way, its time over ours, and the floor over ours: in full and quick runs.
# Measured on two idle cores; in CPU seconds ratios to PecanPy are up to twice as large.
CASES: dict[str, tuple[WalkRules, str | None, tuple[Any, ...], tuple[Any, ...]]] = {
    "Node2Vec weighted, p=2, q=0.5, 20 steps": (
        replace(RULES["node2vec"], length=21),
        OTF,
        (55.0, 40.0),
        (),
    ),
    "the same, length 80": (RULES["node2vec"], OTF, (55.0, 40.0), ()),
    "DeepWalk weighted, length 80": (RULES["deepwalk"], ALIAS, (3.0, 3.0), ()),
    "the same, alias": (WalkRules(80, sampler=Sampler.ALIAS), ALIAS, (3.6, 3.6), ()),
    "the same, ITS": (WalkRules(80, sampler=Sampler.ITS), ALIAS, (0.6, 0.6), ()),
    "DeepWalk, length 80": (WalkRules(80), UNWEIGHTED, (3.9, 3.9), ()),
    "PPR weighted, stop 0.2": (RULES["ppr"], None, (), (0.0086, 0.009)),
    "MetaPath weighted, 0-1-2-3-4": (RULES["metapath"], None, (), (0.0103, 0.006)),
}

PEER = """
import json, sys, time
import numpy as np
from numba_progress import ProgressBar
from pecanpy import pecanpy
folder, way, length, clock = sys.argv[1], sys.argv[2], int(sys.argv[3]), getattr(time, sys.argv[4])
with np.load(folder + "/graph.npz") as graph:
    g = getattr(pecanpy, way)(p=2, q=0.5, random_state=1)
    g.set_node_ids([str(v) for v in range(len(graph["indptr"]) - 1)])
    g.indptr = graph["indptr"].astype(np.uint32)
    g.indices = graph["indices"].astype(np.uint32)
    g.data = graph["weights"].astype(np.float32)
g.preprocess_transition_probs()
move, alone = g.get_move_forward(), g.get_has_nbrs()
starts = np.random.default_rng(0).permutation(g.num_nodes).astype(np.uint32)
for some in (starts[:64], starts):
    begun = clock()
    with ProgressBar(total=len(some), disable=True) as bar:
        paths = g._random_walks(len(some), length, 1, some, alone, move, bar)
    steps = int((paths[:, -1].astype(int) - 1).sum())
    seconds = clock() - begun
print(json.dumps([seconds, steps]))
"""


def make_graph(path: Path, scale: int, factor: int = 16, *, scramble: bool = True) -> WalkGraph:
    """Return the rows of the graph."""
    drawn = {"scale": scale, "edge_factor": factor, "weights": "1,5", "relations": 5}
    generate("rmat", path, scramble=scramble, quiet=True, **drawn)
    csr = Graph.open(path).csr()
    arrays = [np.array(each) for each in (csr.indptr, csr.indices, csr.weights, csr.relations)]
    return WalkGraph(*arrays)


def prepare(base: WalkGraph, rules: WalkRules) -> WalkGraph:
    """Return the rows that these rules walk on, with their tables."""
    rows = base if rules.sampler != Sampler.DIRECT else replace(base, weights=None)
    if rules.sampler == Sampler.RESERVOIR:  # reads relations itself, and needs no tables
        return rows if rules.schema else replace(rows, relations=None)
    if rules.schema:
        rows = cpu.rows_by_relation(rows, np.array(rules.schema, np.int32))
    return cpu.tables(replace(rows, relations=None), rules)


class Walker:
    """Walks of one case, with new seeds in every run."""

    def __init__(
        self, base: WalkGraph, rules: WalkRules, threads: int, walks: int | None = None
    ) -> None:
        self.walks = walks
        self.base = base if rules.sampler != Sampler.DIRECT else replace(base, weights=None)
        self.rules, self.threads, self.rows = rules, threads, prepare(base, rules)
        self.draw, self.steps = np.random.default_rng(), 0

    def __call__(self) -> Timed:
        """Walk from every node, or as often from random ones, in batches on threads."""
        rules = replace(self.rules, seed=int(self.draw.integers(1 << 62)))
        nodes = len(self.base.indptr) - 1
        walks = np.arange(self.walks or nodes)
        starts = self.draw.permutation(nodes)
        if self.walks is not None:
            starts = self.draw.integers(nodes, size=self.walks)
        starts = starts.astype(self.base.indices.dtype)

        def batch(first: int) -> Any:
            some = slice(first, first + BATCH)
            return cpu.walk(self.rows, rules, walks[some], starts[some])

        begun = clock()
        with ThreadPoolExecutor(self.threads) as pool:
            parts = list(pool.map(batch, range(0, len(walks), BATCH)))
        seconds = clock() - begun
        self.steps = sum(int((part[:, 1:] >= 0).sum()) for part in parts)
        return Timed(seconds)

    def check(self, values: dict[str, Any]) -> dict[str, Any]:
        def walk(walks: Any, starts: Any, length: int) -> Any:
            seeded = replace(self.rules, length=length, seed=int(self.draw.integers(1 << 62)))
            return tampered(cpu.walk(self.rows, seeded, walks, starts))

        least = check_app(walk, self.base, self.rules, self.draw)
        return {"steps": self.steps, "least chance": least}

    def pecanpy(self, seconds_of_a_step: Callable[[], float]) -> Timed:
        """Return the seconds of PecanPy for as many steps."""
        return Timed(seconds_of_a_step() * self.steps)

    def gather(self) -> Timed:
        """Gather an element of as many random edges."""
        count = 1 << 20
        at = self.draw.integers(0, len(self.base.indices), count)
        out = np.empty(count, self.base.indices.dtype)
        begun = clock()
        for _ in range(GATHERS):
            np.take(self.base.indices, at, out=out, mode="clip")
        return Timed((clock() - begun) / GATHERS / count * self.steps / self.threads)


def pecanpy(given: argparse.Namespace, base: WalkGraph, way: str, length: int) -> float:
    """Walk by PecanPy; return the seconds of a step."""
    file = given.scratch / "graph.npz"
    if not file.exists():
        np.savez(file, indptr=base.indptr, indices=base.indices, weights=base.weights)
    name = "process_time" if given.cpu else "perf_counter"
    words, env = ["-c", PEER, file.parent, way, length - 1, name], str(given.threads)
    seconds, steps = by_peer(given.peers, *words, NUMBA_NUM_THREADS=env)
    return float(seconds / steps)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    base = make_graph(given.scratch / "g", given.scale)
    lengths = {OTF: 21, ALIAS: 80, UNWEIGHTED: 80}
    peers = {n: cache(partial(pecanpy, given, base, n, lengths[n])) for n in lengths}
    for name, (rules, way, faster, share) in CASES.items():
        walker = Walker(base, rules, given.threads)
        sides = {"gathering": Side(walker.gather, *share, floor=True)}
        if way is not None:
            peer = partial(walker.pecanpy, peers[way])
            needs = [in_peers(given, "pecanpy")]
            sides[f"PecanPy {way}"] = Side(peer, *faster, needs=needs)
        yield Case(name, walker, walker.check, sides)


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


if __name__ == "__main__":
    sizes = Option("--scale", 16, 13, "of the R-MAT graph"), Option("--threads", 2, 2, "of all")
    sys.exit(main(__doc__, cases, *sizes))
