import numpy as np
import pytest

from penstock.kernels.cpu import zoo as cpu
from penstock.kernels.naive import zoo as naive

SIZES = np.array([32, 64, 1024, 32, 128, 256, 512, 32])
KINDS = np.array([1, 0, 1, 0, 1, 1, 0, 1], np.int8)


@pytest.mark.parametrize(("least", "most"), [(8, 16), (1, 1), (31, 31)])
@pytest.mark.parametrize("first", [0, 2**31])
def test_edge_counts(same, least, most, first):
    sizes = np.tile(SIZES, 50)
    counts = naive.edge_counts(4, sizes, least, most, first)
    same(cpu.edge_counts(4, sizes, least, most, first), counts)
    degree = 2 * counts / sizes
    assert np.all(degree <= most)
    assert np.all(degree > least - 2 / 32)  # rounded down to whole edges
    if least < most:
        assert degree.mean() == pytest.approx((least + most) / 2, abs=0.4)


@pytest.mark.parametrize(("least", "most"), [(8, 16), (1, 2), (31, 31)])
def test_edges(same, least, most):
    sizes, kinds = SIZES[[0, 1, 3, 4, 5]], KINDS[[0, 1, 3, 4, 5]]
    counts = naive.edge_counts(4, sizes, least, most, 77)
    truth = naive.edges(4, sizes, counts, kinds, 77)
    same(cpu.edges(4, sizes, counts, kinds, 77), truth)


def test_graphs_are_simple_and_as_large_as_promised():
    counts = cpu.edge_counts(4, SIZES, 8, 16, 0)
    degrees, targets = cpu.edges(4, SIZES, counts, KINDS, 0)
    assert len(degrees) == SIZES.sum()
    assert degrees.sum() == len(targets) == 2 * counts.sum()
    rows = np.repeat(np.arange(len(degrees)), degrees)
    graph = np.repeat(np.arange(len(SIZES)), SIZES)
    first = np.cumsum(SIZES) - SIZES
    for number in range(len(SIZES)):
        mine = graph[rows] == number
        u, v = rows[mine] - first[number], targets[mine]
        key = u * SIZES[number] + v
        assert np.all(np.diff(key) > 0)  # sorted, no duplicates
        assert np.all((v >= 0) & (v < SIZES[number]))
        assert not np.any(u == v)
        assert np.array_equal(np.sort(v * SIZES[number] + u), key)  # both directions
        assert len(key) == 2 * counts[number]
