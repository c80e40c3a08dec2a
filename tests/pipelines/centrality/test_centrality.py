"""``penstock centrality`` against NetworkX: zoos, one graph, samples, bad input, resuming."""

import json
import math
import random

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, centrality, etl, generate
from penstock.errors import CorruptFile
from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale
from penstock.kernels.cpu import centrality as cpu
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.centrality.sources import Shares, error_bound, sample_size


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """One graph of NetworkX, and its directory; isolated nodes are in the node table."""
    folder = tmp_path_factory.mktemp("one")
    graph = nx.gnp_random_graph(150, 0.02, seed=3)
    for a, b in graph.edges:
        graph[a][b]["weight"] = 1.0 + (a * b) % 3
    ends = np.array(list(graph.edges))
    weights = [data["weight"] for _, _, data in graph.edges(data=True)]
    table = {"source": ends[:, 0], "target": ends[:, 1], "weight": weights}
    pq.write_table(pa.table(table), folder / "edges.parquet")
    pq.write_table(pa.table({"id": np.arange(150)}), folder / "nodes.parquet")
    etl(folder / "edges.parquet", folder / "g", nodes=folder / "nodes.parquet")
    return graph, folder / "g"


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("endpoints", [True, False])
def test_samples_are_scaled_as_networkx_does(network, tmp_path, normalized, endpoints):
    graph, path = network
    options = {"normalized": normalized, "endpoints": endpoints}
    report = centrality(path, tmp_path / "out", samples=40, seed=5, **options)
    assert report.samples == 40
    assert report.error_bound == error_bound(150, 40)
    drawn = np.random.Generator(np.random.Philox(5)).permutation(150)[:40]

    class Drawn(random.Random):  # whom NetworkX asks for its sample
        def sample(self, population, k):
            return [population[i] for i in np.sort(drawn)]

    wanted = nx.betweenness_centrality(graph, k=40, seed=Drawn(), **options)
    found = {row["node"]: row for row in pq.read_table(tmp_path / "out/nodes").to_pylist()}
    values = [found[n]["betweenness"] for n in graph]
    np.testing.assert_allclose(values, [wanted[n] for n in graph], rtol=1e-9, atol=1e-12)
    exact = nx.closeness_centrality(graph)
    values = np.array([found[n]["closeness"] for n in graph])
    assert np.corrcoef(values, [exact[n] for n in graph])[0, 1] > 0.9


def test_the_bound_of_samples_holds_in_nine_of_ten_draws():
    """Of two halves that one node joins, half of the sources say all of its betweenness.

    With a 64th of the samples, an eighth of the precision, it does not hold.
    """
    half, runs = 300, 100
    nodes = 2 * half + 1
    tails = np.concatenate([np.arange(half), np.full(half, half)])
    heads = np.concatenate([np.full(half, half), np.arange(half + 1, nodes)])
    indptr = np.searchsorted(tails, np.arange(nodes + 1))
    batch = GraphBatch(np.array([0, nodes]), indptr, heads.astype(np.int32), directed=True)
    exact = half * half / ((nodes - 1) * (nodes - 2))

    def misses(epsilon, wanted):
        drawn = 0
        for seed in range(runs):
            options = CentralityOptions(samples=wanted, seed=seed)
            shares = Shares.of(nodes, len(heads), options)
            sums, _ = cpu.betweenness(batch, shares.listed)
            others = np.full(nodes, float(wanted))
            others[shares.listed] -= 1
            given = {"directed": True, "normalized": True, "endpoints": False}
            scale = betweenness_scale(batch.ptr, sources=others, **given)
            drawn += abs(sums[half] * scale[half] - exact) > epsilon
        return drawn

    for epsilon in (0.1, 0.15, 0.2):
        enough = sample_size(nodes, CentralityOptions(epsilon=epsilon))
        assert enough == math.ceil(math.log(20 * nodes) / (2 * epsilon**2)) + 1
        assert misses(epsilon, enough) <= runs / 10
        assert error_bound(nodes, enough) <= epsilon
        assert misses(epsilon, enough // 64) > runs / 10
    assert error_bound(nodes, 1) == error_bound(nodes, 2) == 1
    assert error_bound(nodes, nodes) == 0


def test_a_zoo_whose_table_of_graphs_is_another_one_is_refused(tmp_path):
    generate("zoo", tmp_path / "zoo", graphs=5, seed=2)
    manifest = tmp_path / "zoo/graph.json"
    manifest.write_text(manifest.read_text().replace('"graphs": 5', '"graphs": 4'))
    with pytest.raises(CorruptFile):
        centrality(tmp_path / "zoo", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("large", [False, True])
def test_more_paths_than_a_float_counts(tmp_path, monkeypatch, large):
    """2 ** 1030 shortest paths: their shares are no numbers, which is said."""
    if large:
        monkeypatch.setattr("penstock.pipelines.centrality.pieces.LARGE_ITEMS", 100)
    rows = [(2, 0, 1)]
    for i in range(0, 3 * 1030, 3):
        rows += [(1, i, i + 1), (1, i, i + 2), (1, i + 1, i + 3), (1, i + 2, i + 3)]
    columns = {
        name: [row[k] for row in rows] for k, name in enumerate(("graph_id", "source", "target"))
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    metrics = "closeness,betweenness,edge-betweenness"
    options = {"metrics": metrics}
    assert centrality(tmp_path / "a.parquet", tmp_path / "out", **options).failed == 1
    failures = pq.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    assert [row["graph_id"] for row in failures] == [1]
    assert failures[0]["reason"]
    nodes = pq.read_table(tmp_path / "out" / "nodes").to_pylist()
    assert {row["betweenness"] for row in nodes} == {None, 0.0}
    assert all(row["closeness"] > 0 for row in nodes)
    edges = pq.read_table(tmp_path / "out" / "edges").to_pylist()
    assert {row["betweenness"] for row in edges if row["graph_id"] == 1} == {None}


@pytest.mark.multigpu
def test_two_gpus_write_what_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.pipelines.centrality.pieces.LEAST_COST", 1e5)
    generate("zoo", tmp_path / "zoo", graphs=600, seed=3)
    files = []
    for name, cluster in (("one", "threads"), ("two", "mpi")):
        spec = ClusterSpec(cluster=cluster, workers=2 if name == "two" else None)
        report = centrality(
            tmp_path / "zoo", tmp_path / name, metrics="closeness,betweenness", cluster=spec
        )
        assert report.devices == ("1 GPU" if name == "one" else "2 GPUs")
        files.append(json.loads((tmp_path / name / "centrality.json").read_text())["files"])
    assert files[0] == files[1]
