import numpy as np
import pytest
from graphs import write_graph

from penstock.csr import CSR
from penstock.errors import CapacityError
from penstock.partition.assign import assign


def write(path, sources, targets, nodes, *, directed=False, ids=None):
    sources, targets = np.asarray(sources), np.asarray(targets)
    if not directed:
        sources, targets = np.concatenate([[sources, targets], [targets, sources]], axis=1)
    csr = CSR.from_edges(sources, targets, nodes)
    return write_graph(path, csr, ids, shard_edges=500, directed=directed)


def blocks(path, count=4, size=60):
    """A ring of equal circulant blocks: one component, and an obvious way to cut it."""
    firsts = np.arange(count)[:, None, None] * size
    inside = np.arange(size)[:, None]
    sources = np.broadcast_to(firsts + inside, (count, size, 4)).ravel()
    targets = (firsts + (inside + np.array([1, 7, 11, 19])) % size).ravel()
    ring = firsts.ravel(), np.roll(firsts.ravel(), 1)
    joined = np.concatenate([sources, ring[0]]), np.concatenate([targets, ring[1]])
    return write(path, *joined, count * size)


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    return blocks(tmp_path_factory.mktemp("graphs") / "ring")


def cut(graph, parts):
    csr = graph.csr()
    return int(np.sum(parts[csr.sources()] != parts[csr.indices]))


def load_imbalance(graph, parts, k):
    sums = np.bincount(parts, graph.degrees, k)
    return sums.max() / sums.mean()


def test_a_star_falls_to_greedy_and_its_hub_stands_alone(tmp_path):
    leaves = 4000
    graph = write(tmp_path / "star", np.zeros(leaves, int), np.arange(1, leaves + 1), leaves + 1)
    made = assign(graph, 4)
    assert made.made_by == "greedy"
    assert ("metis-kway", "skipped") in [(step["phase"], step["outcome"]) for step in made.steps]
    counts = np.bincount(made.parts)
    assert counts[made.parts[0]] == 1
    others = np.delete(counts, made.parts[0])
    assert others.max() - others.min() <= 1
    assert made.balance.load == pytest.approx(made.balance.reachable)


def test_ten_thousand_components_are_not_cut(tmp_path):
    nodes = np.arange(50_000).reshape(-1, 5)
    graph = write(tmp_path / "g", nodes[:, :-1].ravel(), nodes[:, 1:].ravel(), 50_000)
    made = assign(graph, 8)
    assert made.made_by == "components"
    assert cut(graph, made.parts) == 0
    assert load_imbalance(graph, made.parts, 8) <= 1.01
    assert made.balance.nodes <= 1.01


def test_a_hub_too_heavy_for_any_part_does_not_scare_metis_away(tmp_path):
    # Four blocks, and a node that touches every fourth node of them.
    graph = blocks(tmp_path / "g", size=100)
    csr = graph.csr()
    spokes = np.arange(0, 400, 1)
    below = csr.sources() < csr.indices
    sources = np.concatenate([csr.sources()[below], np.full(len(spokes), 400)])
    targets = np.concatenate([csr.indices[below], spokes])
    graph = write(tmp_path / "hub", sources, targets, 401)
    made = assign(graph, 16)
    assert made.balance.reachable > 1.03
    assert made.made_by == "metis-kway"
    assert made.balance.within(1.05)


# -- memory ----------------------------------------------------------------------------------


def test_what_metis_cannot_hold_is_streamed(ring):
    made = assign(ring, 4, memory_limit=1000)
    assert made.made_by == "streaming"
    assert made.steps[1]["phase"] == "metis-kway"
    assert made.steps[1]["outcome"] == "skipped"
    assert load_imbalance(ring, made.parts, 4) <= 1.05
    assert cut(ring, made.parts) < 0.5 * cut(ring, assign(ring, 4, method="random").parts)


def test_metis_asked_for_but_too_big_is_an_error(ring):
    with pytest.raises(CapacityError):
        assign(ring, 4, method="metis", memory_limit=1000)


# -- every method ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", "str"])
def test_a_hashed_node_keeps_its_part_in_another_days_graph(tmp_path, kind):
    ids = np.arange(100, 400)
    yesterday = [f"u{i}" for i in ids] if kind == "str" else ids
    today = yesterday[::-1][:200]
    ring = np.arange(300), (np.arange(300) + 1) % 300
    graph = write(tmp_path / "yesterday", *ring, 300, ids=yesterday)
    one = assign(graph, 5, method="hash").parts
    ring = np.arange(200), (np.arange(200) + 1) % 200
    other = assign(write(tmp_path / "today", *ring, 200, ids=today), 5, method="hash").parts
    np.testing.assert_array_equal(one[::-1][:200], other)
    assert np.bincount(one).max() < 90
