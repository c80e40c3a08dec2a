"""Where nodes and edges lie: every node once, every edge once, the same for any threads."""

import numpy as np
import pytest

from penstock import Graph, generate
from penstock.kernels.naive import buckets as naive
from penstock.partition.order import order
from penstock.workers.embed.layout import buckets as module
from penstock.workers.embed.layout.buckets import build_buckets
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.schedule.bucket_schedule import BucketSchedule


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("layout") / "kg"
    generate("kg", path, entities=900, triples=12_000, relations=11, seed=4, quiet=True)
    return Graph.open(path)


@pytest.mark.parametrize("assigned", [False, True])
def test_an_epoch_is_every_edge_once_whatever_threads_and_pieces(
    graph, tmp_path, monkeypatch, assigned
):
    monkeypatch.setattr(module, "GROUP", 20)
    layout = NodeLayout.ranges(graph.num_nodes, 6)
    if assigned:
        parts = np.random.default_rng(1).integers(0, 6, graph.num_nodes)
        layout = NodeLayout.of_assignment(parts, 6)
    made = []
    for threads, piece in ((1, 100), (3, 1 << 22)):
        monkeypatch.setattr(module, "PIECE", piece)
        folder = tmp_path / str(threads)
        made.append(build_buckets(graph, layout, folder, seed=3, threads=threads))
    buckets, other = made
    for mine, theirs in zip(buckets.columns, other.columns, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(buckets.offsets, other.offsets)
    assert np.diff(buckets.offsets).sum() == graph.num_edges
    assert isinstance(buckets.columns[0], np.memmap)
    node = np.concatenate([layout.nodes_of(p) for p in range(layout.partitions)])
    rows, found, which = max(layout.sizes), [], 0
    for step in BucketSchedule(order("prefetch", 6), seed=2).scheduled(3):
        first = {p: slot * rows for slot, p in enumerate(step.buffer)}
        for shares in (step.before, step.during):
            edges = buckets.phase(shares, first, rows=3 * rows, seed=5, which=which)
            which += 1
            assert len(edges) == buckets.count(shares)
            for start in range(0, len(edges), 97):
                heads, relations, tails, _ = edges.batch(start, start + 97)
                assert len(heads) <= 97
                assert heads.dtype == np.int32
                ends = [
                    [node[layout.starts[step.buffer[row // rows]] + row % rows] for row in side]
                    for side in (heads, tails)
                ]
                found += zip(ends[0], relations, ends[1], strict=True)
    csr = graph.csr()
    assert sorted(found) == sorted(zip(csr.sources(), csr.relations, csr.indices, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("resident", [False, True])
def test_edges_on_a_gpu_are_those_of_the_host(graph, tmp_path, resident):
    from penstock.workers.embed.layout.gpu_edges import buckets_on_device, on_device

    layout = NodeLayout.ranges(graph.num_nodes, 6)
    buckets = build_buckets(graph, layout, tmp_path, seed=1)
    rows = max(layout.sizes)
    step = next(iter(BucketSchedule(order("prefetch", 6), seed=2).scheduled(0)))
    first = {p: slot * rows for slot, p in enumerate(step.buffer)}
    shares = step.before + step.during
    here = buckets.phase(shares, first, rows=3 * rows, seed=5, which=1)
    held = buckets_on_device(buckets) if resident else buckets
    assert isinstance(held.columns[0], np.ndarray) != resident
    there = on_device(held.phase(shares, first, rows=3 * rows, seed=5, which=1))
    assert len(here) == len(there) > 0
    for start in range(0, len(here), 97):
        mine, theirs = (edges.batch(start, start + 97) for edges in (here, there))
        for one, other in zip(mine, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one, other.get())


@pytest.mark.parametrize("where", ["naive", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_one_bucket_of_all_edges_is_the_same_everywhere(graph, tmp_path, monkeypatch, where):
    monkeypatch.setattr(module, "GROUP", 20)
    made = build_buckets(graph, NodeLayout.ranges(graph.num_nodes, 1), tmp_path, seed=3)
    if where == "gpu":
        from penstock.workers.embed.layout.gpu_edges import sort_on_device

        device = sort_on_device(graph, 3)
        found = [column.get() for column in device.columns[:3]]
    else:
        csr, groups = graph.csr(), module.groups_of(graph.num_edges, 1)
        found = naive.shuffled_edges(csr.indptr, csr.indices, csr.relations, groups, 3)
    for column, expected in zip(found, made.columns[:3], strict=True):
        np.testing.assert_array_equal(column, expected)
