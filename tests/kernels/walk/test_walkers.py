"""Walks over parts of a graph, played in one process: the same as on the whole graph."""

import numpy as np
import pytest

from penstock.csr import CSR
from penstock.kernels import walkers as records
from penstock.kernels.walk_rules import Owned, Sampler, Walkers, WalkGraph, WalkRules

ROWS = ("indptr", "indices", "weights", "relations", "times")
NODES, WALKS = 40, 60
SCHEMA = {"schema": (0, 1, 0), "cyclic": True}
NODE2VEC = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0}

RULES = {
    "deepwalk": WalkRules(20, seed=1),
    "weighted": WalkRules(20, seed=2, sampler=Sampler.REJECTION),
    "its": WalkRules(20, seed=3, sampler=Sampler.ITS),
    "alias": WalkRules(20, seed=4, sampler=Sampler.ALIAS),
    "ppr": WalkRules(60, seed=5, stop=0.1),
    "restart": WalkRules(20, seed=6, sampler=Sampler.REJECTION, restart=0.3, stop=0.05),
    "node2vec": WalkRules(20, seed=7, **NODE2VEC),
    "node2vec symmetric": WalkRules(20, seed=7, symmetric=True, **NODE2VEC),
    "node2vec near": WalkRules(20, seed=8, second_order=True, return_factor=4.0, far_factor=0.25),
    "node2vec weighted": WalkRules(20, seed=9, sampler=Sampler.REJECTION, restart=0.1, **NODE2VEC),
    "node2vec its": WalkRules(20, seed=9, sampler=Sampler.ITS, symmetric=True, **NODE2VEC),
    "node2vec alias": WalkRules(20, seed=9, sampler=Sampler.ALIAS, **NODE2VEC),
    "metapath": WalkRules(20, seed=10, **SCHEMA),
    "metapath ends": WalkRules(20, seed=11, sampler=Sampler.REJECTION, schema=(1, 0, 2)),
    "metapath second order": WalkRules(20, seed=12, **SCHEMA, **NODE2VEC),
    "temporal": WalkRules(20, seed=13, timed=True, earliest=10, latest=95),
    "temporal weighted": WalkRules(20, seed=14, sampler=Sampler.ITS, timed=True, restart=0.2),
    "temporal second order": WalkRules(20, seed=15, timed=True, **NODE2VEC),
    "all": WalkRules(
        20, seed=16, sampler=Sampler.REJECTION, timed=True, restart=0.1, **SCHEMA, **NODE2VEC
    ),
    "reservoir": WalkRules(20, seed=17, sampler=Sampler.RESERVOIR, restart=0.1, stop=0.02),
    "reservoir metapath": WalkRules(20, seed=18, sampler=Sampler.RESERVOIR, timed=True, **SCHEMA),
    "expression": WalkRules(
        20,
        seed=19,
        sampler=Sampler.RESERVOIR,
        expression="weight * (1 - is_return) + degree % 2 + label * (step > 3)",
    ),
    "one node": WalkRules(1, seed=17),
}


def pick(walkers, places):
    """Return the walkers at ``places``: indices, a mask or a slice."""
    return Walkers(**{name: getattr(walkers, name)[places] for name in records.NAMES})


def columns_of(seed, *, directed, nodes=NODES):
    """A graph with a hub, dead ends, parallel edges and edges of weight 0, as columns."""
    random = np.random.default_rng(seed)
    ends = random.integers(0, nodes, (4 * nodes, 2))
    ends[: nodes // 2, 0] = 0
    ends = ends[(ends[:, 0] % 9 != 5) & (ends[:, 1] % 9 != 6)]
    more = {
        "weights": random.choice([0, 0.25, 1, 3], len(ends)).astype(np.float32),
        "relations": random.integers(0, 3, len(ends)).astype(np.int32),
        "times": random.integers(0, 100, len(ends)),
    }
    if not directed:
        ends = np.concatenate([ends, ends[:, ::-1]])
        more = {name: np.concatenate([column, column]) for name, column in more.items()}
    csr = CSR.from_edges(ends[:, 0], ends[:, 1], nodes, **more)
    degrees = csr.degrees().astype(np.int32)
    return {name: getattr(csr, name) for name in ROWS} | {"degrees": degrees}


def part_of(columns, owned):
    """The columns of some rows."""
    indptr = columns["indptr"]
    edges = [np.arange(indptr[node], indptr[node + 1]) for node in owned]
    picked = np.concatenate([np.empty(0, np.int64), *edges])
    part = {name: columns[name][picked] for name in ROWS[1:]}
    return columns | part | {"indptr": np.cumsum([0, *map(len, edges)], dtype=np.int64)}


def rows_of(backend, rules, columns):
    """Rows as the rules read them."""
    module = backend.module("walk")
    weighted, timed = rules.sampler != Sampler.DIRECT, rules.timed
    rows = WalkGraph(
        backend.put(columns["indptr"]),
        backend.put(columns["indices"]),
        weights=backend.put(columns["weights"]) if weighted else None,
        relations=backend.put(columns["relations"]) if rules.schema else None,
        times=backend.put(columns["times"]) if timed else None,
        degrees=backend.put(columns["degrees"]),
        labels=backend.put(columns["degrees"] % 3),
    )
    if rules.schema and rules.sampler != Sampler.RESERVOIR:
        rows = module.rows_by_relation(rows, backend.put(np.arange(3, dtype=np.int32)))
    if timed and rules.sampler != Sampler.RESERVOIR:
        rows = module.rows_by_time(rows)
    return module.tables(rows, rules)


def whole(backend, rules, columns, starts):
    rows = rows_of(backend, rules, columns)
    walks = backend.put(np.arange(len(starts), dtype=np.int64))
    return backend.get(backend.module("walk").walk(rows, rules, walks, backend.put(starts)))


def in_parts(backend, rules, columns, starts, assignment):
    """Paths of walkers that migrate between parts, and how many did."""
    module, parts = backend.module("walk"), []
    ids = columns["indices"].dtype
    local = np.zeros(len(assignment), ids)
    for rank in range(assignment.max() + 1):
        nodes = np.flatnonzero(assignment == rank)
        local[nodes] = np.arange(len(nodes))
    for rank in range(assignment.max() + 1):
        owned = Owned(rank, backend.put(assignment), backend.put(local))
        rows = rows_of(backend, rules, part_of(columns, np.flatnonzero(assignment == rank)))
        paths = np.full((len(starts), rules.length), -1, ids)
        mine = np.flatnonzero(assignment[starts] == rank)
        paths[mine, 0] = starts[mine]
        walkers = records.start_walkers(
            backend.put(mine), backend.put(mine), backend.put(starts[mine]), ids, rank
        )
        parts.append((rows, owned, backend.put(paths), walkers))
    moved = 0
    while True:
        boxes = [[] for _ in parts]
        for rows, owned, paths, walkers in parts:
            module.advance(rows, rules, owned, walkers, paths)
            for rank, box in enumerate(boxes):
                going = pick(walkers, walkers.to == rank)
                assert rank != owned.rank or not len(going.walk)
                moved += len(going.walk)
                box.append(records.pack(going))
        if not any(len(one) for box in boxes for one in box):
            break
        parts = [
            (rows, owned, paths, records.join([records.unpack(one, ids) for one in box]))
            for (rows, owned, paths, _), box in zip(parts, boxes, strict=True)
        ]
    known = np.stack([backend.get(paths) for _, _, paths, _ in parts])
    assert ((known >= 0).sum(axis=0) <= 1).all()  # each cell is known to one part
    return known.max(axis=0), moved


def starts_of(columns, count=WALKS):
    return (np.arange(count) * 7 % (len(columns["indptr"]) - 1)).astype(columns["indices"].dtype)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(
    "name",
    # An expression is compiled.
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "expression" else name
        for name in RULES
    ],
)
def test_parts_walk_as_the_whole_graph_does(backend, name, k):
    rules = RULES[name]
    if backend.name == "cuda" and rules.sampler == Sampler.RESERVOIR:
        pytest.skip("no reservoir in parts on a GPU")
    columns = columns_of(k, directed=not rules.symmetric)
    starts = starts_of(columns)
    assignment = np.random.default_rng(k).integers(0, k, NODES).astype(np.int32)
    paths, moved = in_parts(backend, rules, columns, starts, assignment)
    expected = whole(backend, rules, columns, starts)
    np.testing.assert_array_equal(paths, expected)
    assert paths.dtype == expected.dtype
    assert (moved > 0) == (k > 1 and rules.length > 1)
    assert (expected >= 0).sum() > WALKS or rules.length == 1
