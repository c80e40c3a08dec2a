"""Walks and their tables against the truth: step by step if they must agree, else by chances."""

from collections import Counter, defaultdict
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from penstock.kernels import walkers as records
from penstock.kernels.naive import walk as naive
from penstock.kernels.walk_rules import Owned, Sampler, Walkers, WalkGraph, WalkRules

HUB = 1500
ENOUGH = 8  # expected in a bin
NEVER = -(1 << 63)
D, R, ITS, ALIAS, RESERVOIR = Sampler
SECOND = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0}
EXPRESSION = "weight * (3 if is_neighbor else 1) * (0.5 if is_return else 1) + step + label"


def rows_of(sources, targets, nodes, **columns):
    """Return rows whose neighbours ascend; equal edges keep their order."""
    order = np.lexsort((targets, sources))
    indptr = np.append(0, np.cumsum(np.bincount(sources, minlength=nodes))).astype(np.int64)
    columns = {name: column[order] for name, column in columns.items()}
    return WalkGraph(indptr, targets[order].astype(np.int32), **columns)


def some_rows(seed=1, *, nodes=40, edges=300, directed=True, weighted=True):
    """A small graph with all columns, edges without weight, parallel ones, and dead ends."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, nodes, (2, edges)) * rng.integers(0, 2, (2, edges))  # many at node 0
    ends[:, edges - edges // 8 :] = ends[:, : edges // 8]
    columns = {
        "weights": rng.choice([0, 0.25, 1, 3.3, 7], edges).astype(np.float32),
        "relations": rng.integers(0, 4, edges).astype(np.int32),
        "times": rng.integers(-3, 12, edges),
    }
    sources, targets = ends
    if directed:
        targets = np.where(sources % 5 == 4, targets - targets % 5, targets)
        sources = np.where(sources % 5 == 3, 0, sources)  # no edge leaves those
    else:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        columns = {name: np.concatenate([each, each]) for name, each in columns.items()}
    if not weighted:
        del columns["weights"]
    degrees = np.bincount(sources, minlength=nodes).astype(np.int32)
    labels = rng.integers(0, 3, nodes).astype(np.int32)
    return replace(rows_of(sources, targets, nodes, **columns), degrees=degrees, labels=labels)


def hub_rows(*, directed=True, skewed=False):
    """Node 0 has HUB neighbours; they have few."""
    rng = np.random.default_rng(5)
    leaves = np.arange(1, HUB + 1)
    near = 1 + (leaves * 7 + rng.integers(0, 3, HUB)) % HUB
    sources = np.concatenate([np.zeros(HUB, int), leaves, leaves, leaves])
    targets = np.concatenate([leaves, np.zeros(HUB, int), near, 1 + leaves % 5])
    weights = np.where(rng.random(len(sources)) < 0.1, 0, rng.uniform(1, 5, len(sources)))
    weights[HUB : 2 * HUB] = 2
    if skewed:
        weights = np.where(weights > 0, 1e-4 * weights, 0)
        weights[7] = 1
    if not directed:
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        weights = np.tile(weights, 2)
    return rows_of(sources, targets, HUB + 1, weights=weights.astype(np.float32))


def without(rows, *names):
    return replace(rows, **dict.fromkeys(names))


def moved(rows, move):
    """Return rows with their arrays put on a backend, or got from it."""
    columns = {}
    for field in fields(WalkGraph):
        column = getattr(rows, field.name)
        if field.name == "neighbours":
            columns[field.name] = column and tuple(move(each) for each in column)
        elif field.name not in ("groups", "packed"):
            columns[field.name] = move(column)
    return replace(rows, **columns)


def prepared(kernel, rows, rules, put=lambda array: array):
    """Return rows as a job lays them out for these rules."""
    if rules.sampler != Sampler.RESERVOIR:
        if rules.schema:
            rows = kernel.rows_by_relation(rows, put(np.arange(3, dtype=np.int32)))
        if rows.times is not None:
            rows = kernel.rows_by_time(rows)
    return kernel.tables(rows, rules)


def walked(backend, rows, rules, walks, starts):
    kernel = backend.module("walk")
    ready = prepared(kernel, moved(rows, backend.put), rules, backend.put)
    starts = np.asarray(starts, rows.indices.dtype)
    return backend.get(kernel.walk(ready, rules, backend.put(walks), backend.put(starts)))


# -- walk by walk ----------------------------------------------------------------------------------

COLUMNS = ("indices", "weights", "relations", "times")
FIRST = ("relations", "times")  # what a plain walk does without
CASES = {
    "uniform": (without(some_rows(weighted=False), *FIRST), {}),
    "weighted": (without(some_rows(), *FIRST), {"sampler": R}),
    "ppr": (without(some_rows(weighted=False), *FIRST), {"stop": 0.2}),
    "restart": (without(some_rows(), *FIRST), {"sampler": R, "stop": 0.05, "restart": 0.3}),
    "second order": (without(some_rows(weighted=False), *FIRST), SECOND),
    "second order, weighted": (without(some_rows(), *FIRST), {"sampler": R, **SECOND}),
    "second order, both ways": (
        without(some_rows(directed=False), *FIRST),
        {"sampler": R, "symmetric": True, **SECOND},
    ),
    "schema": (without(some_rows(weighted=False), "times"), {"schema": (0, 2, 1)}),
    "schema, cyclic": (
        without(some_rows(), "times"),
        {"sampler": R, "schema": (2, 2, 0), "cyclic": True},
    ),
    "times": (without(some_rows(weighted=False), "relations"), {"timed": True}),
    "times, weighted": (
        without(some_rows(), "relations"),
        {"sampler": R, "timed": True, "earliest": 0, "latest": 9},
    ),
    "schema and times": (
        some_rows(),
        {"sampler": R, "schema": (0, 1), "cyclic": True, "timed": True},
    ),
    "skewed": (hub_rows(skewed=True), {"sampler": R, **SECOND}),
}


@pytest.mark.parametrize(
    ("case", "ids"),
    [
        *((case, np.int32) for case in CASES),
        # Compiled anew; together they have all that a walk of wide ids does.
        *(
            pytest.param(case, np.int64, marks=pytest.mark.slow)
            for case in ("restart", "second order, both ways", "schema and times")
        ),
    ],
)
def test_walks_are_those_of_the_truth(backend, case, ids):
    rows, more = CASES[case]
    rows = replace(rows, indices=rows.indices.astype(ids))
    rules = WalkRules(length=7, seed=(1 << 63) + 5, **more)
    nodes = len(rows.indptr) - 1
    walks = np.arange(60, dtype=np.int64) * 1_000_003 + (1 << 33)
    starts = (np.arange(60) * 7 % min(nodes, 40)).astype(ids)
    truth = naive.walk(prepared(naive, rows, rules), rules, walks, starts)
    got = walked(backend, rows, rules, walks, starts)
    assert got.dtype == ids
    np.testing.assert_array_equal(got, truth)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0, 1e-6, 0.1, 1, 1e30])),
        max_size=30,
    ),
    weighted=st.booleans(),
    second_order=st.booleans(),
    factors=st.tuples(st.sampled_from([0.1, 1.0, 3.0]), st.sampled_from([0.1, 1.0, 3.0])),
    restart=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**64 - 1),
    length=st.integers(1, 6),
)
def test_any_walk_is_that_of_the_truth(
    backend, edges, weighted, second_order, factors, restart, seed, length
):
    table = np.array(edges, float).reshape(-1, 3)
    sources, targets = table[:, :2].T.astype(np.int64)
    columns = {"weights": table[:, 2].astype(np.float32)} if weighted else {}
    rows = rows_of(sources, targets, 6, **columns)
    rules = WalkRules(
        length,
        seed,
        R if weighted else D,
        restart=0.0 if second_order else restart,  # together they are compiled anew
        second_order=second_order,
        return_factor=factors[0],
        far_factor=factors[1],
    )
    walks, starts = np.arange(6, dtype=np.int64), np.arange(6, dtype=np.int32)
    truth = naive.walk(prepared(naive, rows, rules), rules, walks, starts)
    np.testing.assert_array_equal(walked(backend, rows, rules, walks, starts), truth)


@pytest.mark.parametrize("sampler", Sampler)
def test_batches_make_no_difference(backend, sampler):
    rows = without(some_rows(directed=False), *FIRST)
    rules = WalkRules(12, 3, sampler, symmetric=True, **SECOND)
    walks = np.random.default_rng(2).permutation(500).astype(np.int64) + (1 << 39)
    starts = walks % 40
    whole = walked(backend, rows, rules, walks, starts)
    for pieces in (2, 7):
        parts = [
            walked(backend, rows, rules, walks[part], starts[part])
            for part in np.array_split(np.arange(500), pieces)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert walked(backend, rows, rules, walks[:0], starts[:0]).shape == (0, 12)
    assert (walked(backend, rows, replace(rules, seed=4), walks, starts) != whole).any()


# -- chances ---------------------------------------------------------------------------------------


def steps_in(paths, nodes):
    """Return the (step, previous, node, target) that occur, target -1 where walks end; how often.

    It takes Python too long to count one by one.
    """
    before = np.pad(paths, ((0, 0), (1, 0)), constant_values=-1).astype(np.int64)
    columns = [before[:, :-2], before[:, 1:-1], before[:, 2:]]
    key = np.broadcast_to(np.arange(1, paths.shape[1]), columns[0].shape)
    for column in columns:
        key = key * (nodes + 1) + column + 1
    keys, counts = np.unique(key[columns[1] >= 0], return_counts=True)
    fields = []
    for _ in columns:
        keys, field = np.divmod(keys, nodes + 1)
        fields = [field - 1, *fields]
    return np.stack([keys, *fields], axis=1).tolist(), counts.tolist()


def check_chances(rows, rules, paths):
    """Compare each step of the walks with its exact chances, given where the walk has been."""
    ready = prepared(naive, rows, rules)
    when = {}
    if rows.times is not None:
        sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        when = dict(
            zip(
                zip(sources.tolist(), rows.indices.tolist(), strict=True),
                rows.times.tolist(),
                strict=True,
            )
        )
        assert len(when) == len(sources), "the time of a step must be known from its ends"
    taken = defaultdict(Counter)
    steps, counts_of = steps_in(paths, len(rows.indptr) - 1)
    for (step, previous, node, target), count in zip(steps, counts_of, strict=True):
        now = when.get((previous, node), NEVER)
        taken[node, previous, step, now][target] = count
    statistic, freedom = 0.0, 0
    ends = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr)), rows.indices
    some = np.ones(len(rows.indices), bool) if rows.weights is None else rows.weights > 0
    allowed = {*zip(*(end[some].tolist() for end in ends), strict=True)}
    for (node, previous, step, now), counts in taken.items():
        if counts.total() < ENOUGH and len(rows.indptr) > HUB:  # too many to compute, and too rare
            assert all((node, target) in allowed for target in counts)
            continue
        edges, chances = naive.transition(ready, rules, node, previous, step, now)
        if not len(edges):
            assert set(counts) == {-1}, "there is nowhere to go"
            continue
        expected = Counter()
        for target, chance in zip(ready.indices[edges].tolist(), chances.tolist(), strict=True):
            expected[target] += chance * counts.total()  # parallel edges lead to one target
        assert set(counts) <= set(expected), "a step that no edge allows"
        if counts.total() < ENOUGH:
            continue
        seen, likely, bins = 0, 0.0, 0
        for target, chance in expected.items():
            seen, likely = seen + counts[target], likely + chance
            if likely >= ENOUGH:  # rare targets share a bin
                statistic += (seen - likely) ** 2 / likely
                seen, likely, bins = 0, 0.0, bins + 1
        if likely > 1e-6:
            statistic += (seen - likely) ** 2 / likely if likely >= 1 else 0
            bins += 1
        freedom += bins - 1
    assert freedom > 3
    assert stats.chi2.sf(statistic, freedom) > 1e-6


def once(rows):
    """Return rows without parallel edges."""
    sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    _, first = np.unique(sources * len(rows.indptr) + rows.indices, return_index=True)
    columns = {
        name: getattr(rows, name)[first]
        for name in ("weights", "relations", "times")
        if getattr(rows, name) is not None
    }
    nodes = len(rows.indptr) - 1
    found = rows_of(sources[first], rows.indices[first], nodes, **columns)
    return replace(found, degrees=rows.degrees, labels=rows.labels)


def backwards(rows):
    """Return rows whose neighbours descend, with the old ones next to them."""
    sources = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    order = np.lexsort((-rows.indices, sources))
    columns = {"indices": rows.indices[order], "weights": rows.weights[order]}
    return replace(rows, neighbours=rows.adjacency, **columns)


APPS = {
    "deepwalk": CASES["weighted"],
    "deepwalk from a hub": (hub_rows(), {}),
    "node2vec": (without(some_rows(), *FIRST), SECOND),
    "node2vec both ways": (
        without(some_rows(directed=False), *FIRST),
        {"symmetric": True, **SECOND},
    ),
    "node2vec far": (
        without(some_rows(edges=120), *FIRST),
        {**SECOND, "return_factor": 3.0, "far_factor": 0.3},
    ),
    "node2vec in rows of another order": (backwards(without(some_rows(), *FIRST)), SECOND),
    "node2vec at a hub": (hub_rows(directed=False), {"symmetric": True, **SECOND}),
    "node2vec skewed": (hub_rows(skewed=True), SECOND),
    "metapath": (without(some_rows(), "times"), {"schema": (0, 2, 1)}),
    "metapath cyclic": (without(some_rows(), "times"), {"schema": (1, 2), "cyclic": True}),
    "times": (without(once(some_rows()), "relations"), {"timed": True, "latest": 10}),
    "expression": (without(some_rows(), *FIRST), {"expression": EXPRESSION}),
    "expression that is not always positive": (
        without(some_rows(), *FIRST),
        {"expression": "degree - 5 if step < 3 else 0 / 0"},
    ),
    "expression of relations and times": (
        once(some_rows()),
        {"expression": "1 + relation * weight", "timed": True},
    ),
}
WAYS = [
    (app, sampler)
    for app in APPS
    for sampler in (R, ITS, ALIAS, RESERVOIR)
    if not (app.startswith("expression") and sampler != RESERVOIR)
    and not (app in ("times", "metapath", "metapath cyclic") and sampler == ALIAS)
]


@pytest.mark.parametrize(
    ("app", "sampler"),
    # Every expression is compiled.
    [
        pytest.param(*way, marks=pytest.mark.slow) if way[0].startswith("expression ") else way
        for way in WAYS
    ],
)
def test_chances(backend, app, sampler):
    rows, more = APPS[app]
    hub = len(rows.indptr) > HUB
    count = 150_000
    rules = WalkRules(3 if hub else 4, 11, **{**more, "sampler": sampler})
    walks = np.arange(count, dtype=np.int64)
    starts = walks % (2 if hub else 7)
    check_chances(rows, rules, walked(backend, rows, rules, walks, starts))


def test_chances_of_all_alike(backend):
    walks = np.arange(100_000, dtype=np.int64)
    for case in ("uniform", "second order"):
        rows, more = CASES[case]
        for sampler in (D, RESERVOIR):
            rules = WalkRules(4, 12, **{**more, "sampler": sampler})
            check_chances(rows, rules, walked(backend, rows, rules, walks, walks % 7))


def paths_in_time(edges, start, length, rules):
    """Return every walk in time over (source, target, time, weight) and its chance, by hand."""
    near = {(u, v) for u, v, _, _ in edges}

    def go(path, now, chance):
        nexts = [edge for edge in edges if edge[0] == path[-1] and edge[2] >= now]
        if len(path) == length or not nexts:
            key = (*path, *[-1] * (length - len(path)))
            found[key] = found.get(key, 0.0) + chance
            return
        factors = [1.0] * len(nexts)
        if len(path) > 1 and rules.second_order:
            factors = [
                rules.return_factor
                if v == path[-2]
                else 1.0
                if (path[-2], v) in near
                else rules.far_factor
                for _, v, _, _ in nexts
            ]
        shares = [edge[3] * factor for edge, factor in zip(nexts, factors, strict=True)]
        for (_, target, when, _), share in zip(nexts, shares, strict=True):
            go((*path, target), when, chance * share / sum(shares))

    found = {}
    go((start,), -np.inf, 1.0)
    return found


@pytest.mark.parametrize(
    ("sampler", "second"),
    # Those that are slow are compiled anew.
    [
        *((D, False), (ITS, False), (R, True), (RESERVOIR, True)),
        *(pytest.param(one, True, marks=pytest.mark.slow) for one in (D, ITS)),
    ],
)
def test_neighbours_repeated_at_other_times(backend, sampler, second):
    """One neighbour at several times is several edges, each with its own weight and future."""
    sources = (0, 0, 0, 1, 1, 1, 2, 2, 2, 1, 3, 3, 3, 2)
    targets = (1, 1, 1, 2, 2, 2, 3, 0, 0, 3, 0, 4, 4, 4)
    times = (1, 9, 4, 5, 2, 2, 6, 3, 8, 7, 6, 9, 6, 9)
    weights = [1.0 if sampler == D else 1.0 + number % 3 for number in range(len(times))]
    edges = list(zip(sources, targets, times, weights, strict=True))
    if second:
        edges += [(v, u, when, w) for u, v, when, w in edges]
    sources, targets, times, shares = (np.array(column) for column in zip(*edges, strict=True))
    columns = {"times": times.astype(np.int64), "weights": shares.astype(np.float32)}
    rows = rows_of(sources, targets, 5, **columns)
    rows = without(rows, "weights") if sampler == D else rows
    rules = WalkRules(4, 5, sampler, timed=True, symmetric=second, **(SECOND if second else {}))
    walks = np.arange(60_000, dtype=np.int64)
    paths = walked(backend, rows, rules, walks, np.zeros(len(walks), np.int64))
    truth = paths_in_time(edges, 0, 4, rules)
    counts = Counter(map(tuple, paths.tolist()))
    assert set(counts) <= set(truth)
    expected = np.array([truth[path] for path in truth]) * len(walks)
    seen = np.array([counts[path] for path in truth])
    rare = expected < ENOUGH
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(seen[~rare], seen[rare].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1)).sum()
    assert stats.chi2.sf(statistic, len(expected) - 1) > 1e-6
    if sampler in (D, R):  # the same walks as the truth, too
        some = walks[:300]
        same = naive.walk(prepared(naive, rows, rules), rules, some, np.zeros(300, np.int32))
        np.testing.assert_array_equal(paths[:300], same)


def test_a_row_of_zeros_ends_the_walk(backend):
    rows = rows_of(np.array([0, 1, 1]), np.array([1, 0, 2]), 3, weights=np.float32([1, 0, 0]))
    for sampler in Sampler:
        for more in ({}, SECOND):
            paths = walked(
                backend, rows, WalkRules(4, 1, sampler, **more), np.arange(3), np.arange(3)
            )
            assert paths.tolist() == [[0, 1, -1, -1], [1, -1, -1, -1], [2, -1, -1, -1]]


# -- in parts --------------------------------------------------------------------------------------

# Each rule occurs in one of these; every combination is compiled anew.
IN_PARTS = {
    "alias": (without(some_rows(), *FIRST), {"sampler": ALIAS, **SECOND}),
    "second order, its": (
        without(some_rows(directed=False), *FIRST),
        {"sampler": ITS, "symmetric": True, **SECOND},
    ),
    "all": (
        some_rows(),
        {"sampler": R, "timed": True, "restart": 0.1, "schema": (0, 1), "cyclic": True, **SECOND},
    ),
    "reservoir": (
        some_rows(),
        {"sampler": RESERVOIR, "stop": 0.02, "timed": True, "schema": (0, 1), "cyclic": True},
    ),
    "expression": (  # without is_neighbor, which a job refuses in parts
        without(some_rows(), *FIRST),
        {
            "sampler": RESERVOIR,
            "expression": "weight * (1 - is_return) + degree % 2 + label * (step > 3)",
        },
    ),
}


def part_of(rows, nodes):
    """Return the rows of some nodes; what is known of all nodes stays whole."""
    edges = [np.arange(rows.indptr[node], rows.indptr[node + 1]) for node in nodes]
    picked = np.concatenate([np.empty(0, np.int64), *edges])
    names = [name for name in COLUMNS if getattr(rows, name) is not None]
    columns = {name: getattr(rows, name)[picked] for name in names}
    return replace(rows, indptr=np.cumsum([0, *map(len, edges)], dtype=np.int64), **columns)


def walked_in_parts(backend, rows, rules, starts, assignment):
    """Return the paths of walkers that migrate between parts, and how many did."""
    module, parts, ids = backend.module("walk"), [], rows.indices.dtype
    owners = [np.flatnonzero(assignment == rank) for rank in range(assignment.max() + 1)]
    local = np.zeros(len(assignment), ids)
    for nodes in owners:
        local[nodes] = np.arange(len(nodes))
    for rank, nodes in enumerate(owners):
        owned = Owned(rank, backend.put(assignment), backend.put(local))
        here = prepared(module, moved(part_of(rows, nodes), backend.put), rules, backend.put)
        paths, mine = np.full((len(starts), rules.length), -1, ids), assignment[starts] == rank
        mine = np.flatnonzero(mine)
        paths[mine, 0] = starts[mine]
        given = (backend.put(each) for each in (mine, mine, starts[mine]))
        parts.append((here, owned, backend.put(paths), records.start_walkers(*given, ids, rank)))
    migrated = 0
    while True:
        boxes = [[] for _ in parts]
        for here, owned, paths, walkers in parts:
            module.advance(here, rules, owned, walkers, paths)
            for rank, box in enumerate(boxes):
                columns = {
                    name: getattr(walkers, name)[walkers.to == rank] for name in records.NAMES
                }
                going = Walkers(**columns)
                assert rank != owned.rank or not len(going.walk)
                migrated += len(going.walk)
                box.append(records.pack(going))
        if not any(len(one) for box in boxes for one in box):
            break
        parts = [
            (here, owned, paths, records.join([records.unpack(one, ids) for one in box]))
            for (here, owned, paths, _), box in zip(parts, boxes, strict=True)
        ]
    known = np.stack([backend.get(paths) for _, _, paths, _ in parts])
    assert ((known >= 0).sum(axis=0) <= 1).all()  # each cell is known to one part
    return known.max(axis=0), migrated


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(
    "case",
    # An expression is compiled.
    [pytest.param(one, marks=pytest.mark.slow) if one == "expression" else one for one in IN_PARTS],
)
def test_parts_walk_as_the_whole_graph_does(backend, case, k):
    rows, more = IN_PARTS[case]
    rules = WalkRules(15, 7, **more)
    if backend.name == "cuda" and rules.sampler == RESERVOIR:
        pytest.skip("no reservoir in parts on a GPU")
    starts = (np.arange(60) * 7 % 40).astype(rows.indices.dtype)
    assignment = np.random.default_rng(k).integers(0, k, 40).astype(np.int32)
    paths, migrated = walked_in_parts(backend, rows, rules, starts, assignment)
    expected = walked(backend, rows, rules, np.arange(60), starts)
    np.testing.assert_array_equal(paths, expected)
    assert paths.dtype == expected.dtype
    assert (migrated > 0) == (k > 1)


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "hub", "none"])
def test_tables_are_those_of_the_truth(backend, same, name):
    rows = {"small": some_rows(), "hub": hub_rows(), "none": some_rows(edges=0)}[name]
    kernel = backend.module("walk")
    indptr, weights = backend.put(rows.indptr), backend.put(rows.weights)
    bounds, bad, zero = naive.check_weights(rows.indptr, rows.weights)
    got, got_bad, got_zero = kernel.check_weights(indptr, weights)
    same(got, bounds)
    assert (got_bad, got_zero) == (bad, zero)
    prefix = backend.get(kernel.prefix_sums(indptr, weights))
    np.testing.assert_allclose(prefix, naive.prefix_sums(rows.indptr, rows.weights), rtol=1e-12)
    chance, other = (backend.get(each) for each in kernel.alias_table(indptr, weights))
    assert (chance.dtype, other.dtype) == (np.float32, np.int32)
    share = np.zeros(len(rows.weights))
    for low, high in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        given, total = rows.weights[low:high], rows.weights[low:high].sum(dtype=float)
        share = np.array(chance[low:high], float)
        assert ((share >= 0) & (share <= 1)).all()
        if total > 0:
            np.add.at(share, other[low:high], 1 - chance[low:high].astype(float))
            np.testing.assert_allclose(share / (high - low), given / total, atol=1e-6)
            assert (share[given == 0] == 0).all()
        else:
            assert (share == 1).all()


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, -np.inf])
def test_bad_weights_are_found(backend, bad):
    rows = hub_rows()
    weights = rows.weights.copy()
    weights[[77, 2000]] = bad
    low, high = rows.indptr[[9, 10]]
    weights[low:high] = 0
    kernel = backend.module("walk")
    _, first, zero = kernel.check_weights(backend.put(rows.indptr), backend.put(weights))
    assert (int(first), int(zero)) == (77, 9)


@pytest.mark.parametrize("wanted", [[0, 1, 2, 3], [3, 0], [9, 1]])
@pytest.mark.parametrize("name", ["small", "none", "one row"])
def test_rows_in_another_order(backend, same, name, wanted):
    rows = {
        "small": some_rows(),
        "none": some_rows(edges=0),
        "one row": some_rows(nodes=1, edges=700),
    }[name]
    kernel, here = backend.module("walk"), moved(rows, backend.put)
    relations = np.array(wanted, np.int32)
    by_relation = kernel.rows_by_relation(here, backend.put(relations))
    truth = naive.rows_by_relation(rows, relations)
    both = kernel.rows_by_time(by_relation), naive.rows_by_time(truth)
    for got, expected in (
        (by_relation, truth),
        (kernel.rows_by_time(here), naive.rows_by_time(rows)),
        both,
    ):
        assert got.groups == expected.groups
        for column in ("indptr", "indices", "weights", "relations", "times"):
            same(getattr(got, column), getattr(expected, column))
        same(got.neighbours, expected.neighbours)
    got = kernel.rows_by_time(without(here, "weights", "relations"))
    assert got.weights is None
    assert got.relations is None
