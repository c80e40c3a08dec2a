import numpy as np
import pytest

from penstock.kernels import generate_rules
from penstock.kernels.cpu import rmat as cpu
from penstock.kernels.naive import rmat as naive

GRAPH500 = generate_rules.thresholds(0.57, 0.19, 0.19)


@pytest.mark.parametrize("scale", [1, 7, 8, 9, 16, 17, 31])
@pytest.mark.parametrize("first", [0, 1000, 2**32 - 5])
def test_edges(same, scale, first):
    truth = naive.edges(2**63 + 1, scale, GRAPH500, first, 777)
    assert all(ends.min() >= 0 and ends.max() < 2**scale for ends in truth)
    same(cpu.edges(2**63 + 1, scale, GRAPH500, first, 777), truth)


@pytest.mark.parametrize("shares", [(0.57, 0.19, 0.19), (0.25, 0.25, 0.25), (0.45, 0.15, 0.3)])
def test_quadrants_have_their_shares(shares):
    scale, count = 20, 1 << 18
    sources, targets = cpu.edges(11, scale, generate_rules.thresholds(*shares), 0, count)
    expected = np.array([*shares, 1 - sum(shares)]) * count
    for level in range(scale):
        quadrant = (sources >> level & 1) * 2 + (targets >> level & 1)
        observed = np.bincount(quadrant, minlength=4)
        # Chi-square with three degrees of freedom: 25 is passed once in 65,000 fair levels.
        assert np.sum((observed - expected) ** 2 / expected) < 25


@pytest.fixture
def ends():
    sources, targets = np.random.default_rng(1).integers(0, 2**31 - 1, (2, 5000)).astype(np.int32)
    return sources, targets


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("low", "high"), [(1, 5), (0, 0.1), (3, 1e20), (0.1, 0.3)])
def test_weights(same, ends, ordered, low, high):
    truth = naive.weights(3, *ends, low, high, ordered=ordered)
    assert np.float32(low) <= truth.min()
    assert truth.max() < high
    got = cpu.weights(3, *ends, low, high, ordered=ordered)
    same(got, truth)
    back = naive.weights(3, *ends[::-1], low, high, ordered=ordered)
    assert np.array_equal(truth, back) is not ordered


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [1, 5, 1 << 20])
def test_relations(same, ends, ordered, count):
    truth = naive.relations(3, *ends, count, ordered=ordered)
    assert truth.min() >= 0
    assert truth.max() < count
    got = cpu.relations(3, *ends, count, ordered=ordered)
    same(got, truth)
    back = naive.relations(3, *ends[::-1], count, ordered=ordered)
    assert np.array_equal(truth, back) is (not ordered or count == 1)


@pytest.mark.parametrize("keep_loops", [False, True])
def test_mark_ends(same, keep_loops):
    sources, targets = naive.edges(0, 9, GRAPH500, 0, 300)
    targets[:40] = sources[:40]
    truth = np.zeros(1 << 9, bool)
    naive.mark_ends(sources, targets, truth, keep_loops=keep_loops)
    looped = np.setdiff1d(sources[:40], np.concatenate([sources[40:], targets[40:]]))
    assert np.all(truth[looped] == keep_loops)
    got = np.zeros(1 << 9, bool)
    cpu.mark_ends(sources, targets, got, keep_loops=keep_loops)
    same(got, truth)
