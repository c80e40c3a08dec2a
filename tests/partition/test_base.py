"""Partitions of today on the base of yesterday's: nodes stay, and what is the same is linked."""

import shutil

import numpy as np
import pytest
from graphs import write_graph

from penstock import partition_graph
from penstock.csr import CSR
from penstock.errors import GraphError, InputError, UsageError
from penstock.partition.build import build_parts
from penstock.partition.part import Partition

K, GROUP = 4, 300


def groups(random, across=0.01, count=K):
    """Return edges of groups of nodes; few lead to another one."""
    sources = np.repeat(np.arange(count * GROUP), 8)
    targets = sources // GROUP * GROUP + random.integers(0, GROUP, len(sources))
    far = random.random(len(sources)) < across
    targets[far] = random.integers(0, count * GROUP, int(far.sum()))
    return np.stack([sources, targets])[:, sources != targets]


def save(path, edges, ids, *, directed=False, weights=True):
    both = edges if directed else np.concatenate([edges, edges[::-1]], axis=1)
    columns = {"weights": (both.sum(axis=0) % 5).astype(np.float32) + 1} if weights else {}
    features = np.asarray(ids, np.float32)[:, None].repeat(3, axis=1)
    about = {"features": features, "shard_edges": 500, "directed": directed}
    return write_graph(path, CSR.from_edges(*both, len(ids), **columns), ids, **about)


def cut(graph, base, **options):
    report = partition_graph(graph, k=K, base=base and base.path / f"partition/k{K}", **options)
    partition = Partition.of(graph, K)
    partition.validate()
    return report, partition


def assert_built(graph, partition, folder):
    """Assert that the files are those of the assignment, built without a base."""
    assignment = np.array(partition.assignment)
    entries, files = build_parts(graph, assignment, K, folder)
    assert tuple(entries) == partition.manifest.parts
    assert {entry.name: entry for entry in files} == partition.manifest.files


@pytest.mark.parametrize(("seed", "directed"), [(0, False), (1, True)])
def test_known_nodes_stay_and_new_ones_go_to_their_neighbours(tmp_path, seed, directed):
    random = np.random.default_rng(seed)
    edges, ids = groups(random), np.arange(K * GROUP)
    base = save(tmp_path / "g0", edges, ids, directed=directed)
    _, before = cut(base, None)
    # Two ids are those of other users now, and five nodes are new: each knows one group.
    renamed = random.choice(K * GROUP, 2, replace=False)
    edges = edges[:, ~np.isin(edges, renamed).any(axis=0)]
    new = np.concatenate([renamed, np.arange(len(ids), len(ids) + 5)])
    homes = random.integers(0, K, len(new))
    friends = [np.setdiff1d(np.arange(GROUP) + home * GROUP, renamed) for home in homes]
    more = [[node, friend] for node, some in zip(new, friends, strict=True) for friend in some[:10]]
    edges = np.concatenate([edges, np.array(more).T], axis=1)
    ids = np.concatenate([ids, np.arange(5) + len(ids)])
    ids[renamed] += 1000
    graph = save(tmp_path / "g1", edges, ids, directed=directed)
    report, after = cut(graph, base)
    assert report.made_by == "base"
    stays = np.setdiff1d(np.arange(K * GROUP), renamed)
    np.testing.assert_array_equal(after.assignment[stays], before.assignment[stays])
    for node, home in zip(new, homes, strict=True):
        there = after.assignment[np.setdiff1d(np.arange(GROUP) + home * GROUP, renamed)]
        assert after.assignment[node] == np.bincount(there).argmax()
    assert_built(graph, after, tmp_path / "again")
    assert after.manifest.whole_cut == before.manifest.whole_cut > 0


def test_parts_without_a_change_are_linked_and_outlive_their_base(tmp_path):
    random = np.random.default_rng(5)
    edges, ids = groups(random, across=0.002), np.arange(K * GROUP)
    base = save(tmp_path / "g0", edges, ids)
    _, before = cut(base, None)
    inside = np.flatnonzero((before.assignment[edges] == 2).all(axis=0))
    fewer = np.delete(edges, inside[:3], axis=1)
    graph = save(tmp_path / "g1", fewer, ids)
    _, after = cut(graph, base)
    parts = after.path / "parts"
    for rank in range(K):
        linked = {p.stem for p in (parts / f"{rank:05d}").iterdir() if p.stat().st_nlink > 1}
        assert ("indices" in linked) == ("weights" in linked) == (rank != 2)
        assert {"owned", "features"} <= linked
    shutil.rmtree(tmp_path / "g0")
    after.validate()
    assert_built(graph, after, tmp_path / "again")


def test_a_load_beyond_its_limit_is_evened_out(tmp_path):
    random = np.random.default_rng(6)
    edges, ids = groups(random, across=0.3), np.arange(K * GROUP)
    base = save(tmp_path / "g0", edges, ids)
    _, before = cut(base, None)
    heavy = np.flatnonzero(before.assignment == 0)
    more = random.choice(heavy, (2, 400))
    more = more[:, more[0] != more[1]]
    graph = save(tmp_path / "g1", np.concatenate([edges, more], axis=1), ids)
    report, after = cut(graph, base)
    assert report.made_by == "base"
    assert report.load_imbalance <= 1.05
    moved = np.count_nonzero(after.assignment != before.assignment)
    assert 0 < moved < len(ids) / 4
    assert_built(graph, after, tmp_path / "again")


def test_a_graph_of_other_edges_is_cut_whole(tmp_path):
    random = np.random.default_rng(7)
    edges, ids = groups(random), np.arange(K * GROUP)
    base = save(tmp_path / "g0", edges, ids)
    cut(base, None)
    graph = save(tmp_path / "g1", random.permutation(len(ids))[edges], ids)
    report, after = cut(graph, base)
    assert report.made_by != "base"
    assert [step["outcome"] for step in report.steps if step["phase"] == "base"] == ["refused"]
    assert after.manifest.whole_cut == pytest.approx(report.cut_share)
    assert report.cut_share < 0.1
    assert_built(graph, after, tmp_path / "again")


def test_a_base_of_another_kind_is_refused(tmp_path):
    edges, ids = groups(np.random.default_rng(8)), np.arange(K * GROUP)
    base = save(tmp_path / "g0", edges, ids)
    cut(base, None)
    for name, options in (("directed", {"directed": True}), ("plain", {"weights": False})):
        with pytest.raises(InputError):
            cut(save(tmp_path / name, edges, ids, **options), base)
    graph = save(tmp_path / "g1", edges, ids)
    with pytest.raises(UsageError):
        partition_graph(graph, k=K + 1, base=base.path / f"partition/k{K}")
    with pytest.raises(GraphError):
        partition_graph(graph, k=K, base=base.path)
    for method in ("hash", "random", "components", "greedy"):
        with pytest.raises(UsageError):
            partition_graph(graph, k=K, base=base.path / f"partition/k{K}", method=method)
    assert not (graph.path / "partition").exists() or not any((graph.path / "partition").iterdir())
