import math

import numpy as np
import pytest

from penstock.kernels.cpu import sbm as cpu
from penstock.kernels.naive import sbm as naive

STARTS = np.array([0, 10, 25, 60, 100])
ALL = -math.inf


def rest(probability):
    return math.log1p(-probability) if probability < 1 else ALL


@pytest.mark.parametrize(("inside", "outside"), [(0.3, 0.1), (0, 0.5), (0.4, 0), (1, 1), (1e-9, 0)])
@pytest.mark.parametrize(("first", "count"), [(0, 100), (33, 41), (99, 1), (5, 0)])
def test_edges(same, inside, outside, first, count):
    asked = (2**63, STARTS, rest(inside), rest(outside), first, count)
    same(cpu.edges(*asked), naive.edges(*asked))


def test_every_pair_is_a_fair_coin():
    starts = np.array([0, 20, 40])
    inside = np.zeros((40, 40))
    for seed in range(400):
        sources, targets = cpu.edges(seed, starts, rest(0.25), rest(0.05), 0, 40)
        assert np.all(targets < sources)
        np.add.at(inside, (sources, targets), 1)
    block = np.arange(40) // 20
    for same_block, p in ((True, 0.25), (False, 0.05)):
        pairs = (
            np.tril(block[:, None] == block, -1)
            if same_block
            else np.tril(block[:, None] != block, -1)
        )
        counts = inside[pairs]
        # 400 tosses of each of 380 or 400 coins: every coin, and all of them together.
        assert np.abs(counts - 400 * p).max() < 5 * math.sqrt(400 * p * (1 - p))
        total = 400 * len(counts)
        assert abs(counts.sum() - total * p) < 4 * math.sqrt(total * p * (1 - p))
        assert counts.var() == pytest.approx(400 * p * (1 - p), rel=0.35)


@pytest.mark.parametrize("width", [1, 2, 7, 64])
@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_dense(same, width, noise):
    labels = np.arange(50, dtype=np.int32) % 7
    asked = (9, labels, 7, width, noise, 2**31 - 3)
    truth = naive.dense(*asked)
    same(cpu.dense(*asked), truth)
    if noise == 0:
        np.testing.assert_array_equal(truth[0], truth[7])
        assert not np.array_equal(truth[0], truth[1])


def test_noise_is_about_normal():
    numbers = cpu.normals(1, 0, 4000, 50)
    assert abs(numbers.mean()) < 4 / math.sqrt(numbers.size)
    assert numbers.std() == pytest.approx(1, rel=0.01)
    # A normal law has 4.6 % beyond two deviations; four summands come close.
    assert np.mean(np.abs(numbers) > 2) == pytest.approx(0.043, abs=0.005)
    correlation = np.corrcoef(numbers.T) - np.eye(50)
    assert np.abs(correlation).max() < 5 / math.sqrt(4000)


@pytest.mark.parametrize("topic", [0, 2**31, 2**32])
def test_sparse(same, topic):
    labels = np.arange(60, dtype=np.int32) % 7
    asked = (9, labels, 7, 100, 20, topic, 12)
    indptr, indices = naive.sparse(*asked)
    same(cpu.sparse(*asked), (indptr, indices))
    for row, label in enumerate(labels):
        bag = indices[indptr[row] : indptr[row + 1]]
        assert np.all(np.diff(bag) > 0)
        assert 1 <= len(bag) <= 20
        low, high = label * 100 // 7, (label + 1) * 100 // 7
        if topic == 2**32:
            assert np.all((low <= bag) & (bag < high))
