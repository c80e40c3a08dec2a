import numpy as np
import pytest

from penstock.kernels import generate_rules
from penstock.kernels.cpu import knowledge as cpu
from penstock.kernels.naive import knowledge as naive
from penstock.kernels.naive.scramble import scramble

ENTITIES, RELATIONS, CLUSTERS = 1000, 30, 62


def asked(noise, first=100, count=5000, seed=3):
    entities = scramble(seed, 1, 0, ENTITIES, ENTITIES)
    shifts = (np.arange(RELATIONS, dtype=np.int32) * 7) % CLUSTERS
    heads = generate_rules.zipf_quantiles(ENTITIES, 0.8)
    relations = generate_rules.zipf_quantiles(RELATIONS, 0.8)
    return seed, entities, CLUSTERS, shifts, heads, relations, int(noise * 2**32), first, count


@pytest.mark.parametrize("noise", [0, 0.1, 1])
@pytest.mark.parametrize(("first", "count"), [(0, 5000), (2**33, 100), (7, 0)])
def test_triples(same, noise, first, count):
    same(cpu.triples(*asked(noise, first, count)), naive.triples(*asked(noise, first, count)))


@pytest.mark.parametrize("noise", [0, 0.25])
def test_the_rule_holds(noise):
    _, entities, _, shifts, *_ = arguments = asked(noise, 0, 20_000)
    heads, tails, relations = cpu.triples(*arguments)
    position = np.empty(ENTITIES, np.int64)
    position[entities] = np.arange(ENTITIES)
    cluster = position * CLUSTERS // ENTITIES
    obeyed = cluster[tails] == (cluster[heads] + shifts[relations]) % CLUSTERS
    # A tail at random is in the right cluster once in 62 times.
    expected = 1 - noise * (1 - 1 / CLUSTERS)
    assert obeyed.mean() == pytest.approx(expected, abs=0.015 if noise else 0)


@pytest.mark.parametrize("skew", [0, 0.5, 0.8, 1, 1.5, 3])
def test_zipf(skew):
    quantiles = generate_rules.zipf_quantiles(1000, skew)
    assert quantiles[0] == 0
    assert quantiles[-1] == 1000
    assert quantiles[-2] <= 999
    assert np.all(np.diff(quantiles) >= 0)
    words = np.random.default_rng(0).integers(0, 2**32, 200_000)
    ranks = naive._quantile(quantiles, words)
    assert ranks.min() >= 0
    assert ranks.max() <= 999
    # The continuous law puts the integral of x**-skew over [k, k + 1] on rank k - 1.
    ends = np.arange(1.0, 1002.0)
    area = np.log(ends) if skew == 1 else (ends ** (1 - skew) - 1) / (1 - skew)
    expected = np.diff(area) / area[-1]
    for low, high in ((0, 1), (1, 4), (4, 30), (30, 200), (200, 1000)):
        share = np.mean((low <= ranks) & (ranks < high))
        assert share == pytest.approx(expected[low:high].sum(), abs=0.005)


@pytest.mark.parametrize(("valid", "test"), [(0, 0), (0.05, 0.1), (0.5, 0.49)])
def test_splits(same, valid, test):
    triples = cpu.triples(*asked(0.5, 0, 20_000))
    chances = int(valid * 2**32), int(test * 2**32)
    truth = naive.splits(3, *triples, *chances)
    same(cpu.splits(3, *triples, *chances), truth)
    key = (triples[0].astype(np.int64) * ENTITIES + triples[1]) * RELATIONS + triples[2]
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(truth, truth[first][back])  # duplicates agree
    shares = np.bincount(truth[first], minlength=3) / len(first)
    assert shares == pytest.approx([1 - valid - test, valid, test], abs=0.015)
