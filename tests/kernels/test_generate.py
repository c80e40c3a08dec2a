"""Generators: Numba draws what the naive twin draws, and what is drawn has its distribution."""

import math
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import generate_rules
from penstock.kernels.cpu import knowledge, rmat, sbm, zoo
from penstock.kernels.cpu.scramble import scramble

GRAPH500 = generate_rules.thresholds(0.57, 0.19, 0.19)
ENDS = np.random.default_rng(1).integers(0, 2**31 - 1, (2, 5000)).astype(np.int32)
STARTS = np.array([0, 10, 25, 60, 100])
LABELS = np.arange(50, dtype=np.int32) % 7
ENTITIES, RELATIONS, CLUSTERS = 1000, 30, 62
SIZES = np.array([32, 64, 1024, 32, 128, 256, 512, 32])
KINDS = np.array([1, 0, 1, 0, 1, 1, 0, 1], np.int8)


def rest(probability):
    return math.log1p(-probability) if probability < 1 else -math.inf


def triples(noise, first=100, count=5000):
    shifts = (np.arange(RELATIONS, dtype=np.int32) * 7) % CLUSTERS
    heads, relations = (generate_rules.zipf_quantiles(n, 0.8) for n in (ENTITIES, RELATIONS))
    entities = scramble(3, 1, 0, ENTITIES, ENTITIES)
    return 3, entities, CLUSTERS, shifts, heads, relations, int(noise * 2**32), first, count


def few(sizes, least, most):
    return sizes, import_module("penstock.kernels.naive.zoo").edge_counts(4, sizes, least, most, 77)


TWINS = [  # module, function, arguments, options
    *(
        ("rmat", "edges", (2**63 + 1, scale, GRAPH500, first, 777), {})
        for scale in (1, 7, 8, 9, 16, 17, 31)
        for first in (0, 1000, 2**32 - 5)
    ),
    *(
        ("rmat", name, (3, *ENDS, *bounds), {"ordered": ordered})
        for ordered in (False, True)
        for name, bounds in (
            *(("weights", bounds) for bounds in ((1, 5), (0, 0.1), (3, 1e20), (0.1, 0.3))),
            *(("relations", (count,)) for count in (1, 5, 1 << 20)),
        )
    ),
    *(
        ("knowledge", "triples", triples(noise, *which), {})
        for noise in (0, 0.1, 1)
        for which in ((0, 5000), (2**33, 100), (7, 0))
    ),
    *(
        ("sbm", "edges", (2**63, STARTS, rest(inside), rest(outside), *which), {})
        for inside, outside in ((0.3, 0.1), (0, 0.5), (0.4, 0), (1, 1), (1e-9, 0))
        for which in ((0, 100), (33, 41), (99, 1), (5, 0))
    ),
    *(
        ("sbm", "dense", (9, LABELS, 7, width, noise, 2**31 - 3), {})
        for width in (1, 2, 7, 64)
        for noise in (0.0, 4.0)
    ),
    *(("sbm", "sparse", (9, LABELS, 7, 100, 20, topic, 12), {}) for topic in (0, 2**31, 2**32)),
    *(
        ("scramble", "scramble", (3, 1, max(0, size - 700), min(size, 700), size), {})
        for size in (1, 2, 3, 64, 1000, 2**20, 2**31 - 1)
    ),
    *(
        ("zoo", "edge_counts", (4, np.tile(SIZES, 50), *bounds, first), {})
        for bounds in ((8, 16), (1, 1), (31, 31))
        for first in (0, 2**31)
    ),
    *(
        ("zoo", "edges", (4, *few(SIZES[[0, 1, 3, 4, 5]], *bounds), KINDS[[0, 1, 3, 4, 5]], 77), {})
        for bounds in ((8, 16), (1, 2), (31, 31))
    ),
]


@pytest.mark.parametrize("noun", sorted({twin[0] for twin in TWINS}))
def test_what_is_drawn_is_what_the_twin_draws(same, noun):
    cpu, naive = (import_module(f"penstock.kernels.{kind}.{noun}") for kind in ("cpu", "naive"))
    for module, name, arguments, options in TWINS:
        if module == noun:
            same(
                getattr(cpu, name)(*arguments, **options),
                getattr(naive, name)(*arguments, **options),
            )


# -- R-MAT -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(0.57, 0.19, 0.19), (0.25, 0.25, 0.25), (0.45, 0.15, 0.3)])
def test_quadrants_have_their_shares(shares):
    scale, count = 20, 1 << 18
    sources, targets = rmat.edges(11, scale, generate_rules.thresholds(*shares), 0, count)
    expected = np.array([*shares, 1 - sum(shares)]) * count
    for level in range(scale):
        quadrant = (sources >> level & 1) * 2 + (targets >> level & 1)
        observed = np.bincount(quadrant, minlength=4)
        # Chi-square with three degrees of freedom: 25 is passed once in 65,000 fair levels.
        assert np.sum((observed - expected) ** 2 / expected) < 25


@pytest.mark.parametrize("ordered", [False, True])
def test_weights_and_relations_have_their_bounds_and_are_those_of_both_ways(ordered):
    for low, high in ((1, 5), (0, 0.1), (3, 1e20), (0.1, 0.3)):
        there, back = (rmat.weights(3, *e, low, high, ordered=ordered) for e in (ENDS, ENDS[::-1]))
        assert np.float32(low) <= there.min()
        assert there.max() < high
        assert np.array_equal(there, back) is not ordered
    for count in (1, 5, 1 << 20):
        there, back = (rmat.relations(3, *e, count, ordered=ordered) for e in (ENDS, ENDS[::-1]))
        assert 0 <= there.min() <= there.max() < count
        assert np.array_equal(there, back) is (not ordered or count == 1)


@pytest.mark.parametrize("keep_loops", [False, True])
def test_ends_of_loops_alone_are_marked_if_loops_are_kept(same, keep_loops):
    sources, targets = rmat.edges(0, 9, GRAPH500, 0, 300)
    targets[:40] = sources[:40]
    found = []
    for kind in ("cpu", "naive"):
        found.append(np.zeros(1 << 9, bool))
        module = import_module(f"penstock.kernels.{kind}.rmat")
        module.mark_ends(sources, targets, found[-1], keep_loops=keep_loops)
    same(*found)
    looped = np.setdiff1d(sources[:40], np.concatenate([sources[40:], targets[40:]]))
    assert np.all(found[0][looped] == keep_loops)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_scrambled_numbers_are_a_permutation(size, seed):
    np.testing.assert_array_equal(np.sort(scramble(seed, 14, 0, size, size)), np.arange(size))


# -- knowledge graphs ------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0, 0.25])
def test_triples_obey_the_rule_but_for_the_noise(noise):
    _, entities, _, shifts, *_ = arguments = triples(noise, 0, 20_000)
    heads, tails, relations = knowledge.triples(*arguments)
    position = np.empty(ENTITIES, np.int64)
    position[entities] = np.arange(ENTITIES)
    cluster = position * CLUSTERS // ENTITIES
    obeyed = cluster[tails] == (cluster[heads] + shifts[relations]) % CLUSTERS
    # A tail at random is in the right cluster once in 62 times.
    expected = 1 - noise * (1 - 1 / CLUSTERS)
    assert obeyed.mean() == pytest.approx(expected, abs=0.015 if noise else 0)


@pytest.mark.parametrize("skew", [0, 0.5, 1, 3])
def test_ranks_follow_zipfs_law(skew):
    quantiles = generate_rules.zipf_quantiles(1000, skew)
    assert (quantiles[0], quantiles[-1]) == (0, 1000)
    # The continuous law puts the integral of x**-skew over [k, k + 1] on rank k - 1.
    ends = np.arange(1.0, 1002.0)
    area = np.log(ends) if skew == 1 else (ends ** (1 - skew) - 1) / (1 - skew)
    expected = np.diff(area) / area[-1]
    ranks = np.interp(
        np.random.default_rng(0).random(200_000), np.linspace(0, 1, len(quantiles)), quantiles
    )
    for low, high in ((0, 1), (1, 4), (4, 30), (30, 200), (200, 1000)):
        share = np.mean((low <= ranks) & (ranks < high))
        assert share == pytest.approx(expected[low:high].sum(), abs=0.005)


@pytest.mark.parametrize(("valid", "test"), [(0, 0), (0.05, 0.1), (0.5, 0.49)])
def test_equal_triples_share_a_split_of_the_right_size(same, valid, test):
    found = knowledge.triples(*triples(0.5, 0, 20_000))
    asked = (3, *found, int(valid * 2**32), int(test * 2**32))
    splits = knowledge.splits(*asked)
    same(splits, import_module("penstock.kernels.naive.knowledge").splits(*asked))
    key = (found[0].astype(np.int64) * ENTITIES + found[1]) * RELATIONS + found[2]
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(splits, splits[first][back])
    shares = np.bincount(splits[first], minlength=3) / len(first)
    assert shares == pytest.approx([1 - valid - test, valid, test], abs=0.015)


# -- blocks ----------------------------------------------------------------------------------------


def test_every_pair_of_a_block_model_is_a_fair_coin():
    counts = np.zeros((40, 40))
    for seed in range(400):
        sources, targets = sbm.edges(seed, np.array([0, 20, 40]), rest(0.25), rest(0.05), 0, 40)
        assert np.all(targets < sources)
        np.add.at(counts, (sources, targets), 1)
    block = np.arange(40) // 20
    for together, p in ((True, 0.25), (False, 0.05)):
        # 400 tosses of each of 380 or 400 coins: every coin, and all of them together.
        found = counts[np.tril((block[:, None] == block) == together, -1)]
        total, variance = 400 * len(found), 400 * p * (1 - p)
        assert np.abs(found - 400 * p).max() < 5 * math.sqrt(variance)
        assert abs(found.sum() - total * p) < 4 * math.sqrt(total * p * (1 - p))
        assert found.var() == pytest.approx(variance, rel=0.35)


def test_features_without_noise_are_those_of_the_label():
    dense = sbm.dense(9, LABELS, 7, 64, 0.0, 5)
    np.testing.assert_array_equal(dense[0], dense[7])
    assert not np.array_equal(dense[0], dense[1])
    indptr, indices = sbm.sparse(9, LABELS, 7, 100, 20, 2**32, 12)
    for row, label in enumerate(LABELS):
        bag = indices[indptr[row] : indptr[row + 1]]
        assert np.all(np.diff(bag) > 0)
        assert 1 <= len(bag) <= 20
        assert np.all((label * 100 // 7 <= bag) & (bag < (label + 1) * 100 // 7))


def test_noise_is_about_normal():
    numbers = sbm.normals(1, 0, 4000, 50)
    assert abs(numbers.mean()) < 4 / math.sqrt(numbers.size)
    assert numbers.std() == pytest.approx(1, rel=0.01)
    # A normal law has 4.6 % beyond two deviations; four summands come close.
    assert np.mean(np.abs(numbers) > 2) == pytest.approx(0.043, abs=0.005)
    correlation = np.corrcoef(numbers.T) - np.eye(50)
    assert np.abs(correlation).max() < 5 / math.sqrt(4000)


# -- zoos ------------------------------------------------------------------------------------------


def test_graphs_of_a_zoo_are_simple_undirected_and_as_dense_as_asked():
    sizes, kinds = np.tile(SIZES, 50), np.tile(KINDS, 50)
    counts = zoo.edge_counts(4, sizes, 8, 16, 0)
    mean = 2 * counts / sizes
    assert np.all((mean > 8 - 2 / 32) & (mean <= 16))  # rounded down to whole edges
    assert mean.mean() == pytest.approx(12, abs=0.4)
    degrees, targets = zoo.edges(4, sizes, counts, kinds, 0)
    graph = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.repeat(np.arange(len(degrees)), degrees)
    of, u = graph[rows], rows - np.repeat(np.cumsum(sizes) - sizes, sizes)[rows]
    assert not np.any(u == targets)
    assert np.all((targets >= 0) & (targets < sizes[of]))
    there, back = ((of * 1024 + a) * 1024 + b for a, b in ((u, targets), (targets, u)))
    assert np.all(np.diff(there) > 0)  # sorted, no duplicates
    np.testing.assert_array_equal(np.sort(back), there)
    np.testing.assert_array_equal(np.bincount(of), 2 * counts)
