"""What bench_walk.py and bench_walk_gpu.py share: the graph, the applications and the checks."""

from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np
from scipy.stats import chi2

from penstock.kernels.cpu.scramble import scramble
from penstock.kernels.naive.walk import transition
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import Rows, Rules, Sampler

RELATIONS = 5
LEAST_CHANCE = 1e-6  # of a right sampler looking as bad as this
HUB = 20_000  # edges of the hub that is checked, or the nearest to it that there is


@dataclass(frozen=True)
class App:
    """One application, with what is to be beaten.

    queries     walks from the largest hub; 0: one from every node
    flowwalker  milliseconds that FlowWalker takes at scale 22 on an H200
    target      milliseconds that are asked for there
    """

    name: str
    rules: Rules
    queries: int = 0
    flowwalker: float = 0
    target: float = 0


APPS = [
    App("DeepWalk weighted", Rules(80), flowwalker=2404, target=80),
    App(
        "Node2Vec weighted, p=2, q=0.5",
        Rules(80, second_order=True, return_factor=0.5, far_factor=2.0, symmetric=True),
        flowwalker=9491,
        target=300,
    ),
    App("PPR, stop 0.2, from the largest hub", Rules(80, stop=0.2), 4_000_000, 1861, 40),
    App("MetaPath 0-1-2-3-4", Rules(6, schema=(0, 1, 2, 3, 4)), flowwalker=95.5, target=8),
]


def make_graph(scale, backend="cpu", seed=0, edge_factor=16):
    """Return the rows of ``penstock generate rmat --weights 1,5 --relations 5``, both ways."""
    xp = import_module("cupy" if backend == "cuda" else "numpy")
    rmat = import_module(f"penstock.kernels.{backend}.rmat")
    nodes, half = 1 << scale, xp.uint64(32)
    names = xp.asarray(scramble(seed, Stream.RMAT_SCRAMBLE, 0, nodes, nodes))
    shares = rmat.thresholds(0.57, 0.19, 0.19)
    u, v = rmat.edges(seed, scale, shares, 0, edge_factor << scale, names)
    u, v = u[u != v].astype(xp.uint64), v[u != v].astype(xp.uint64)
    keys = xp.concatenate([u << half | v, v << half | u])
    del u, v
    keys.sort()
    first = xp.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first]
    u, v = (keys >> half).astype(xp.int32), (keys & xp.uint64(2**32 - 1)).astype(xp.int32)
    del keys, first
    degrees = xp.bincount(u, minlength=nodes)
    kept = degrees > 0
    indptr = xp.zeros(int(kept.sum()) + 1, xp.int64)
    indptr[1:] = xp.cumsum(degrees[kept])
    ids = (xp.cumsum(kept) - 1).astype(xp.int32)
    return Rows(
        indptr,
        ids[v],
        weights=rmat.weights(seed, u, v, 1.0, 5.0, ordered=False),
        relations=rmat.relations(seed, u, v, RELATIONS, ordered=False),
    )


def prepare(module, base, rules, put=np.asarray):
    """Return the rows that these rules walk on, with their tables."""
    grouped = bool(rules.schema) and rules.sampler != Sampler.RESERVOIR
    if grouped:
        base = module.rows_by_relation(base, put(np.arange(RELATIONS, dtype=np.int32)))
    if grouped or not rules.schema:
        base = replace(base, relations=None)
    return module.tables(base, rules)


# -- checks ----------------------------------------------------------------------------------------


def check_app(walk, host, rules, draw):
    """Raise unless the walks are right; return the least chance of what was seen.

    walk  (walks, starts, length) -> paths, all NumPy
    host  the rows in NumPy, a row a node
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
    """Return as many walks' numbers, from anywhere."""
    return draw.integers(1 << 39) + np.arange(count, dtype=np.int64)


def check_edges(host, truth, paths):
    """Raise unless every step is an edge that it may take, and every walk goes on while it can."""
    for step in range(1, paths.shape[1]):
        gone = paths[:, step] >= 0
        edges = edge_numbers(host, paths[gone, step - 1], paths[gone, step])
        assert (edges >= 0).all(), f"step {step} is no edge"
        if truth.schema:
            assert (host.relations[edges] == truth.schema[step - 1]).all(), "another relation"
            continue
        assert truth.stop or gone.all(), "a walk ended early"
        assert not (gone & (paths[:, step - 1] < 0)).any(), "a walk went on after its end"


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
    """Return the chance of the steps seen from a node, -1 or the node before it given."""
    edges, chances = transition(host, truth, node, previous, 1 if previous < 0 else 2)
    if not len(edges):
        return 1.0
    count, start, length = max(20_000, 20 * len(edges)), node, 2
    if previous >= 0:
        first, share = transition(host, truth, previous, -1, 1)
        count = int(count / share[host.indices[first] == node][0])
        start, length = previous, 3
    paths = walk(numbers(count, draw), np.full(count, start), length)
    came = paths[(paths[:, -2] == node) & (paths[:, -1] >= 0), -1]
    taken = edge_numbers(host, np.full(len(came), node), came)
    places = np.searchsorted(edges, taken)
    assert (edges[np.minimum(places, len(edges) - 1)] == taken).all(), "an edge without weight"
    return chance(np.bincount(places, minlength=len(edges)), chances * len(came))


def chance(seen, expected):
    """Return the chance that counts differ so much from what is expected; rare ones are pooled."""
    rare = expected < 5
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    seen, expected = seen[expected > 0], expected[expected > 0]
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), max(len(seen) - 1, 1)))
