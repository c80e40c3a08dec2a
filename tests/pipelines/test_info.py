from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from penstock import partition_graph
from penstock.pipelines.info import info


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("nodes", "edges"), [(60, 40), (100, 500), (1, 0)])
def test_counts_are_those_of_networkx(make_graph, directed, nodes, edges):
    graph = make_graph(nodes, edges, directed=directed, shard_edges=16)
    truth, found = nx.MultiDiGraph() if directed else nx.Graph(), info(graph.path)
    truth.add_nodes_from(range(graph.num_nodes))
    csr = graph.csr()
    truth.add_edges_from(zip(csr.sources().tolist(), csr.indices.tolist(), strict=True))
    assert found.nodes == truth.number_of_nodes()
    assert found.edges == truth.number_of_edges()
    assert found.arcs == graph.num_edges
    assert found.isolated == nx.number_of_isolates(truth)
    parts = nx.weakly_connected_components if directed else nx.connected_components
    sizes = [len(part) for part in parts(truth)]
    assert (found.components, found.largest_component) == (len(sizes), max(sizes))
    out = dict(truth.out_degree() if directed else truth.degree())
    check_degrees(found.degrees, np.array([out[i] for i in range(nodes)]))
    assert (found.in_degrees is None) is not directed
    if directed:
        entering = dict(truth.in_degree())
        check_degrees(found.in_degrees, np.array([entering[i] for i in range(nodes)]))


def check_degrees(found, degrees):
    assert (found.min, found.max) == (degrees.min(), degrees.max())
    assert found.mean == pytest.approx(degrees.mean())
    assert found.median == np.percentile(degrees, 50, method="inverted_cdf")
    assert found.p99 == np.percentile(degrees, 99, method="inverted_cdf")
    assert sum(count for *_, count in found.histogram) == len(degrees)
    for low, high, count in found.histogram:
        assert count == np.count_nonzero((degrees >= low) & (degrees <= high))
        assert high in (low, 2 * low - 1)


def test_edge_and_node_data_are_counted(make_graph):
    graph = make_graph(
        weights=True, relations=12, times=True, features="sparse", labels=4, shard_edges=64
    )
    csr, found = graph.csr(), info(graph.path)
    assert found.weights["min"] == pytest.approx(csr.weights.min())
    assert found.weights["max"] == pytest.approx(csr.weights.max())
    assert found.weights["mean"] == pytest.approx(csr.weights.mean(), rel=1e-5)
    assert found.times == {"min": csr.times.min(), "max": csr.times.max()}
    assert list(found.relations.values()) == np.bincount(csr.relations, minlength=12).tolist()
    matrix = graph.features()
    assert found.features["sparsity"] == pytest.approx(1 - matrix.nnz / (100 * 8))
    assert found.labels["labelled"] == 100
    assert len(found.labels["classes"]) == 4
    assert sum(found.bytes.values()) == sum(e.bytes for e in graph.manifest.files.values())


def test_partitions_are_listed_when_they_are_whole(make_graph):
    graph = make_graph()
    made = {k: partition_graph(graph.path, k=k, quiet=True) for k in (10, 2)}
    (graph.path / "partition/k3").mkdir()  # begun and not finished
    (graph.path / "partition/k4").mkdir()
    (graph.path / "partition/k4/partition.json").write_text("{")
    found = info(graph.path)
    assert [p["folder"] for p in found.partitions] == ["k2", "k4", "k10"]
    for k, at in ((2, 0), (10, 2)):
        assert found.partitions[at]["k"] == k
        for name in ("made_by", "cut_share", "replication", "load_imbalance"):
            assert found.partitions[at][name] == getattr(made[k], name)
    assert found.bytes["partition"] == sum(
        file.stat().st_size for file in graph.path.glob("partition/**/*") if file.is_file()
    )
    assert "k4/partition.json" in found.partitions[1]["unusable"]
    replace(graph.manifest, types={"another": graph.num_nodes}).save(graph.path)
    assert info(graph.path).partitions[0]["unusable"]
