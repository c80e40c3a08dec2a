"""Centralities of one graph as arrays, and PageRank of one graph by the command."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from graphs import write_graph

import penstock
from penstock import CSR, Graph
from penstock.errors import InputError, UsageError

CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def drawn(*, directed, nodes=60):
    """Return a graph with loops, isolated nodes and weights."""
    graph = nx.gnm_random_graph(nodes, 150, seed=4, directed=directed)
    graph.add_edges_from([(3, 3), (7, 7)])
    graph.add_nodes_from(range(nodes, nodes + 3))
    for a, b in graph.edges:
        graph[a][b]["weight"] = 1.0 + (a + b) % 4
    return graph


def csr_of(graph):
    return as_csr(nx.to_scipy_sparse_array(graph, weight="weight"))


def as_csr(matrix):
    rows = sp.csr_array(matrix)
    rows.sort_indices()
    return CSR(rows.indptr.astype(np.int64), rows.indices, weights=rows.data.astype(np.float64))


def directory(path, graph, names=None):
    names = pa.array(names or [f"n{node}" for node in graph])
    about = {"shard_edges": 40, "directed": graph.is_directed()}
    return write_graph(path, csr_of(graph), names, **about).path


def every_form(tmp_path, graph):
    """Yield each form of a graph, and whether it does not record its direction."""
    directed = {"directed": graph.is_directed()}
    matrix = nx.to_scipy_sparse_array(graph, weight="weight")
    ends = np.array(graph.edges, np.int64).reshape(-1, 2)
    weights = np.array([data for *_, data in graph.edges(data="weight")])
    last = np.array([[len(graph) - 1] * 2])  # of the arrays: the number of nodes
    yield graph, {}
    yield csr_of(graph), directed
    yield matrix, directed
    yield sp.coo_matrix(matrix), directed
    path = directory(tmp_path / "graph", graph)
    yield path, {}
    yield Graph.open(path), {}
    if last[0, 0] in ends:
        yield (ends[:, 0], ends[:, 1], weights), directed


@pytest.mark.parametrize("directed", [False, True])
def test_each_form_of_a_graph_has_networkxs_values(tmp_path, directed):
    graph = drawn(directed=directed)
    wanted = [
        (compute, weighted, [values[node] for node in graph])
        for weighted, weight in ((False, None), (True, "weight"))
        for compute, values in (
            (penstock.pagerank, nx.pagerank(graph, weight=weight)),
            (penstock.closeness, nx.closeness_centrality(graph, distance=weight)),
            (penstock.harmonic, nx.harmonic_centrality(graph, distance=weight)),
            (penstock.betweenness, nx.betweenness_centrality(graph, weight=weight)),
        )
    ]
    for given, how in every_form(tmp_path, graph):
        for compute, weighted, values in wanted:
            found = compute(given, weighted=weighted, **how)
            np.testing.assert_allclose(found, values, **CLOSE)
        found = penstock.clustering(given, **how)
        np.testing.assert_allclose(found, list(nx.clustering(graph).values()), **CLOSE)
        find = nx.weakly_connected_components if directed else nx.connected_components
        assert sets(penstock.components(given, **how)) == set(map(frozenset, find(graph)))
        if directed:
            strong = set(map(frozenset, nx.strongly_connected_components(graph)))
            assert sets(penstock.strong_components(given, **how)) == strong
        else:
            assert penstock.triangles(given).tolist() == list(nx.triangles(graph).values())


def test_a_csr_of_columns_of_a_table_has_the_same_values():
    csr = csr_of(drawn(directed=False))
    table = np.stack([csr.indices, np.full(csr.edges, 7, csr.indices.dtype)], 1)
    lengths = np.stack([csr.weights, np.full(csr.edges, 7.0)], 1)
    columns = CSR(csr.indptr, table[:, 0], weights=lengths[:, 0])
    for compute in (penstock.pagerank, penstock.closeness, penstock.betweenness):
        for weighted in (False, True):
            wanted = compute(csr, weighted=weighted)
            np.testing.assert_array_equal(compute(columns, weighted=weighted), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("directed", [False, True])
def test_a_gpu_gives_what_cores_give(tmp_path, directed):
    path = directory(tmp_path / "graph", drawn(directed=directed))
    personal = np.arange(63.0)
    for compute, options in (
        (penstock.pagerank, {"personalization": personal, "tol": 1e-12, "max_iter": 500}),
        (penstock.pagerank, {"weighted": True}),
        (penstock.components, {}),
        (penstock.strong_components, {}),
        (penstock.betweenness, {"sources": ["n1", "n4", "n5", "n9", "n30"]}),
        (penstock.clustering, {}),
        (penstock.closeness, {}),
        (penstock.eccentricity, {}),
    ):
        found = compute(path, device="gpu", **options)
        np.testing.assert_allclose(found, compute(path, device="cpu", **options), **CLOSE)
    tables = []
    for device in ("cpu", "gpu"):
        penstock.centrality(
            path,
            tmp_path / device,
            metrics="pagerank,component,strong-component,betweenness,clustering",
            cluster=penstock.ClusterSpec(device=device),
        )
        tables.append(pq.read_table(tmp_path / device / "nodes").to_pandas())
    for name in ("pagerank", "component", "strong_component", "betweenness", "clustering"):
        np.testing.assert_allclose(tables[1][name], tables[0][name], **CLOSE)


def sets(labels):
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


def test_arrays_of_edges_store_each_once():
    found = penstock.betweenness((np.array([0, 1]), np.array([1, 2])))
    assert found.tolist() == [0, 1, 0]
    assert penstock.triangles((np.array([0, 1, 2]), np.array([1, 2, 0]))).tolist() == [1, 1, 1]
    assert penstock.components((np.empty(0, int), np.empty(0, int))).tolist() == []


def test_sources_of_betweenness_and_what_does_not_reach():
    path = nx.path_graph(4)
    found = penstock.betweenness(path, sources=[0], normalized=False)
    assert found.tolist() == [0, 1, 0.5, 0]
    path.add_node(4)
    assert np.isinf(penstock.eccentricity(path)).all()
    assert penstock.eccentricity(nx.path_graph(4)).tolist() == [3, 2, 2, 3]


def test_sums_over_many_sources_are_those_of_all_shares():
    graph = nx.gnm_random_graph(900, 14_000, seed=1)  # its sources are several shares
    found = penstock.betweenness(graph, normalized=False)
    parts = [
        penstock.betweenness(graph, sources=some.tolist(), normalized=False)
        for some in np.array_split(np.arange(900), 15)  # of one share each
    ]
    np.testing.assert_allclose(found, sum(parts), **CLOSE)
    far = sp.csgraph.shortest_path(nx.to_scipy_sparse_array(graph), unweighted=True)
    np.testing.assert_allclose(penstock.closeness(graph), 899 / far.sum(axis=1), **CLOSE)


def test_pageranks_arguments_by_node_and_as_arrays():
    graph = nx.relabel_nodes(drawn(directed=True), lambda node: f"n{node}")
    given = {"personalization": {"n3": 1, "n5": 2}, "dangling": {"n1": 1}, "nstart": {"n9": 4}}
    wanted = list(nx.pagerank(graph, **given, weight=None).values())
    np.testing.assert_allclose(penstock.pagerank(graph, **given), wanted, **CLOSE)
    arrays = {k: np.array([v.get(node, 0) for node in graph]) for k, v in given.items()}
    rows = as_csr(nx.to_scipy_sparse_array(graph, weight=None))
    found = penstock.pagerank(rows, directed=True, **arrays)
    np.testing.assert_allclose(found, wanted, **CLOSE)
    with pytest.raises(InputError):
        penstock.pagerank(graph, max_iter=2, tol=1e-12)
    for bad in ([1, 2], np.zeros(len(graph)), np.full(len(graph), -1.0), {"elsewhere": 1}):
        with pytest.raises(UsageError):
            penstock.pagerank(graph, personalization=bad)


@pytest.mark.parametrize("text", [False, True])
def test_nodes_of_a_directory_are_the_users_ids(tmp_path, text):
    graph = nx.relabel_nodes(drawn(directed=False), lambda n: f"n{n}" if text else 5 * n + 3)
    names = list(graph)
    path = directory(tmp_path / "g", nx.convert_node_labels_to_integers(graph), names=names)
    share = {names[7]: 1, names[2]: 3}
    wanted = list(nx.pagerank(graph, personalization=share, weight=None).values())
    found = penstock.pagerank(path, personalization=share)
    np.testing.assert_allclose(found, wanted, **CLOSE)
    some = [names[4], names[9]]
    ends = nx.betweenness_centrality_subset(graph, some, names)
    found = penstock.betweenness(path, sources=some, normalized=False)
    np.testing.assert_allclose(found, [ends[name] for name in names], **CLOSE)
    for unknown in ("elsewhere", 0.7, True, 1):
        with pytest.raises(UsageError):
            penstock.betweenness(path, sources=[unknown])
        with pytest.raises(UsageError):
            penstock.pagerank(path, personalization={unknown: 1})


def test_unsigned_ends_and_graphs_with_parallel_edges():
    ends = np.array([0, 1, 4], np.uint64), np.array([1, 2, 4], np.uint32)
    assert penstock.components(ends).tolist() == [0, 0, 0, 1, 2]
    uneven = nx.Graph([((0,), (1, 2)), ((1, 2), "end")])  # no array of nodes
    assert penstock.betweenness(uneven, sources=[(0,), (1, 2)], normalized=False)[1] == 0.5
    several = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    assert penstock.closeness(several).tolist() == penstock.closeness(nx.Graph(several)).tolist()


def test_parallel_edges_of_a_csr_may_come_in_another_order_at_the_other_end():
    sources, targets = np.array([0, 1, 2, 1]), np.array([1, 0, 1, 2])
    weights = np.array([1.0, 4.0, 2.0, 3.0])
    a, b = np.concatenate([sources, targets]), np.concatenate([targets, sources])
    csr = CSR.from_edges(a, b, 3, weights=np.concatenate([weights, weights]))
    for compute in (penstock.pagerank, penstock.closeness):
        wanted = compute((sources, targets, weights), weighted=True)
        np.testing.assert_allclose(compute(csr, weighted=True), wanted, **CLOSE)


def test_a_csr_or_matrix_without_nodes_has_no_values():
    for empty in (CSR(np.zeros(1, np.int64), np.zeros(0, np.int32)), sp.csr_array((0, 0))):
        for compute in (penstock.pagerank, penstock.components, penstock.betweenness):
            assert compute(empty).tolist() == []


def test_what_is_no_graph_is_refused(tmp_path):
    csr = csr_of(drawn(directed=True))
    path = directory(tmp_path / "g", drawn(directed=True))
    penstock.generate("zoo", tmp_path / "zoo", graphs=3)
    for bad, how in (
        ("text", {"directed": True}),
        (path, {"directed": True}),
        (nx.path_graph(2), {"directed": False}),
        (csr, {}),
        (CSR(csr.indptr, csr.indices + 5), {"directed": True}),
        (CSR(np.array([0, 5_000_000]), np.zeros(1, np.int32)), {"directed": True}),
        (CSR(csr.indptr, csr.indices, weights=csr.weights[:9]), {"directed": True}),
        (sp.csr_array((3, 4)), {"directed": True}),
        ((np.array([-1]), np.array([1])), {}),
        ((np.array([0]), np.array([1])), {"weighted": True}),
        (tmp_path / "zoo", {}),
    ):
        with pytest.raises(penstock.PenstockError):
            penstock.pagerank(bad, **how)
    for how in ({"method": "labels", "resolution": 2.0}, {"resolution": 0.0}):
        with pytest.raises(UsageError):
            penstock.communities(nx.path_graph(3), **how)
    for how in ({"alpha": 1.5}, {"alpha": 1.0}, {"dtype": "float16"}):
        with pytest.raises(UsageError):
            penstock.pagerank(nx.path_graph(3), **how)
    with pytest.raises(UsageError):
        penstock.triangles(path)
    with pytest.raises(UsageError):
        penstock.betweenness(nx.path_graph(3), sources=[3])
    for wrong in (-1.0, np.nan):
        with pytest.raises(InputError):
            penstock.closeness((np.array([0]), np.array([1]), np.array([wrong])), weighted=True)
    small = sp.csr_array(np.array([[0, 1e-9], [5e-9, 0]]))
    with pytest.raises(UsageError):
        penstock.pagerank(small, weighted=True)


# -- the command -----------------------------------------------------------------------------


def ranks(out):
    table = pq.read_table(out / "nodes")
    return dict(zip(table["node"].to_pylist(), table["pagerank"].to_pylist(), strict=True))


def run(path, out, **options):
    options = {"metrics": "pagerank", "cluster": "threads"} | options
    penstock.centrality(path, out, **options)
    return ranks(out)


@pytest.mark.parametrize("directed", [False, True])
def test_tables_of_values_are_networkxs_arguments(tmp_path, directed):
    graph = nx.relabel_nodes(drawn(directed=directed), lambda node: f"n{node}")
    path = directory(tmp_path / "graph", nx.convert_node_labels_to_integers(graph))
    given = {"personalization": {"n3": 1, "n5": 2}, "dangling": {"n1": 1}, "nstart": {"n9": 4}}
    files = {}
    for name, values in given.items():
        table = pa.table({"node": list(values), "value": list(values.values())})
        files[name] = tmp_path / f"{name}.{'csv' if directed else 'parquet'}"
        (pyarrow.csv.write_csv if directed else pq.write_table)(table, files[name])
    for chosen in ([], ["personalization"], list(given)):
        wanted = nx.pagerank(graph, weight=None, **{name: given[name] for name in chosen})
        found = run(path, tmp_path / str(len(chosen)), **{name: files[name] for name in chosen})
        assert found == pytest.approx(wanted, rel=1e-9)
    files["nstart"].write_bytes(files["dangling"].read_bytes())
    with pytest.raises(penstock.PenstockError):  # a changed input
        run(path, tmp_path / "3", resume=True, **files)


@pytest.mark.parametrize(
    "table",
    [
        {"node": ["n1"], "value": [-1.0]},
        {"node": ["n1", "n2"], "value": [1.0, float("nan")]},
        {"node": ["n1", None], "value": [1.0, 1.0]},
        {"node": ["elsewhere"], "value": [1.0]},
        {"node": ["n1"], "value": [0.0]},
        {"other": [1]},
    ],
)
def test_a_bad_table_of_values_is_refused(tmp_path, table):
    path = directory(tmp_path / "graph", drawn(directed=True))
    file = tmp_path / "values.parquet"
    pq.write_table(pa.table(table), file)
    with pytest.raises(InputError, match=r"values\.parquet"):
        run(path, tmp_path / "out", personalization=file)
    assert not (tmp_path / "out").exists()


def test_float32_is_refused_for_pagerank_of_a_zoo(tmp_path):
    penstock.generate("zoo", tmp_path / "zoo", graphs=3)
    with pytest.raises(UsageError):
        run(tmp_path / "zoo", tmp_path / "out", dtype="float32")


def test_shards_and_in_edges_beyond_memory_change_nothing(tmp_path):
    penstock.generate(
        "rmat", tmp_path / "one", scale=16, undirected=False, weights="1,3", quiet=True
    )
    one = Graph.open(tmp_path / "one")
    write_graph(tmp_path / "many", one.csr(), one.user_ids(), shard_edges=1 << 17)
    given = {"metrics": "pagerank,component", "weighted": True, "tol": 1e-12}
    whole = run(tmp_path / "one", tmp_path / "whole", **given)
    # Nodes fit in a sixteenth of this, in-edges do not.
    small = penstock.ClusterSpec(cluster="local", workers=1, memory_limit="400MB")
    cut = run(tmp_path / "many", tmp_path / "cut", **given)
    assert cut == run(tmp_path / "many", tmp_path / "disk", **given, cluster=small)
    assert list(cut) == list(whole)
    np.testing.assert_allclose(list(cut.values()), list(whole.values()), **CLOSE)


@pytest.mark.parametrize("method", ["leiden", "louvain", "labels"])
@pytest.mark.parametrize("directed", [False, True])
def test_communities_by_the_command_and_as_arrays(tmp_path, method, directed):
    graph = nx.planted_partition_graph(5, 30, 0.4, 0.01, seed=1, directed=directed)
    graph.add_edge(3, 3)
    path = directory(tmp_path / "graph", graph)
    found = penstock.communities(graph, method=method, seed=3)
    assert [len(set(found[start : start + 30])) for start in range(0, 150, 30)] == [1] * 5
    assert found.max() == 4
    for workers in (1, 2):
        spec = penstock.ClusterSpec(cluster="threads", workers=workers)
        out = tmp_path / f"out{workers}"
        report = penstock.centrality(path, out, metrics=method, seed=3, cluster=spec)
        table = pq.read_table(out / "nodes")
        assert table["community"].to_pylist() == found.tolist()
    row = pq.read_table(out / "graphs").to_pylist()[0]
    undirected = nx.MultiGraph(graph.edges)
    wanted = nx.community.modularity(undirected, sets(found))
    assert (row["communities"], row["modularity"]) == (5, pytest.approx(wanted))
    assert (report.communities, report.modularity) == (5, row["modularity"])


def test_options_of_communities(tmp_path):
    graph = nx.planted_partition_graph(4, 25, 0.5, 0.02, seed=1)
    few, many = (penstock.communities(graph, resolution=r).max() for r in (0.01, 20.0))
    assert few < 3 < many
    graphs = [nx.path_graph(3), nx.empty_graph(2), nx.Graph()]
    found = penstock.centrality(graphs, metrics="leiden,closeness")
    assert [each["communities"] for each in found] == [2, 2, 0] or found[0]["communities"] == 1
    assert found[1]["modularity"] == 0
    path = directory(tmp_path / "graph", graph)
    for bad in (
        {"metrics": "leiden,louvain"},
        {"metrics": "labels", "resolution": 2.0},
        {"metrics": "leiden", "resolution": 0.0},
        {"metrics": "closeness", "seed": 3},
    ):
        with pytest.raises(UsageError):
            penstock.centrality(path, tmp_path / "out", **bad)
    with pytest.raises(UsageError):
        penstock.communities(graph, method="spectral")


def test_leiden_as_a_backend_of_networkx():
    if "penstock" not in nx.utils.backends.backends:
        pytest.skip("penstock was installed before it had an entry point for NetworkX")
    graph = nx.relabel_nodes(nx.karate_club_graph(), lambda node: f"n{node}")
    found = nx.community.leiden_communities(graph, seed=2, backend="penstock")
    assert set().union(*found) == set(graph)
    assert nx.community.modularity(graph, found, weight="weight") > 0.44


@pytest.mark.parametrize("weighted", [False, True])
def test_shortest_paths_of_a_graph_in_shards_are_networkxs(tmp_path, weighted):
    graph = drawn(directed=True)
    path = directory(tmp_path / "graph", graph)
    assert Graph.open(path).num_shards > 2
    penstock.centrality(
        path, tmp_path / "out", metrics="closeness,clustering,component", weighted=weighted
    )
    wanted = nx.closeness_centrality(graph, distance="weight" if weighted else None)
    table = pq.read_table(tmp_path / "out" / "nodes")
    np.testing.assert_allclose(table["closeness"], list(wanted.values()), **CLOSE)
    np.testing.assert_allclose(table["clustering"], list(nx.clustering(graph).values()), **CLOSE)


def ladder():
    """Return a graph with 2 ** 1024 shortest paths from its first node to its last one alone."""
    layers = [[0], *([node, node + 1] for node in range(1, 2045, 2)), range(2045, 2049), [2049]]
    ends = [(a, b) for one, two in pairwise(layers) for a in one for b in two]
    return nx.DiGraph(ends)


@pytest.mark.parametrize("weighted", [False, True])
def test_betweenness_with_more_paths_than_a_float_counts_has_no_values(tmp_path, weighted):
    graph = ladder()
    nx.set_edge_attributes(graph, 1.0, "weight")
    path = directory(tmp_path / "graph", graph)
    given = {"metrics": "betweenness", "weighted": weighted, "cluster": "threads"}
    assert penstock.centrality(path, tmp_path / "out", **given).failed == 1
    assert pq.read_table(tmp_path / "out" / "nodes")["betweenness"].null_count == len(graph)
    found = penstock.betweenness(graph, weighted=weighted, sources=[0])
    assert np.isnan(found).all()
