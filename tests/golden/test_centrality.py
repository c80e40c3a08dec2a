"""centrality, of many small graphs and of one, against NetworkX."""

import gzip
import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from golden import adjacency, columns, command, run

METRICS = (
    "closeness,harmonic,betweenness,edge-betweenness,eccentricity,diameter,pagerank,component,"
    "strong-component,clustering --tol 1e-9 --max-iter 1000"
)


def small_graphs(directed):
    """Return graphs of many shapes: connected or not, paths, stars, nodes without edges."""
    kind = nx.DiGraph if directed else nx.Graph
    made = [nx.gnm_random_graph(4 + n, 3 * n, seed=n, directed=directed) for n in range(8)]
    made += [kind(nx.path_graph(7, kind)), kind(nx.star_graph(5)), nx.complete_graph(5, kind)]
    made += [nx.empty_graph(1, kind), nx.empty_graph(2, kind)]
    for graph in made:
        for number, edge in enumerate(sorted(graph.edges)):
            graph.edges[edge]["weight"] = 1 + number * 7 % 5 / 2
    return {f"g{n:02d}": one for n, one in enumerate(made)}


def compare(graph, nodes, edges, weight):
    """Compare what was computed of a graph with NetworkX."""
    nodes, directed = nodes.set_index("node"), graph.is_directed()
    assert set(nodes.index) == set(graph)
    far = {node: nx.shortest_path_length(graph, node, weight=weight) for node in graph}
    expected = {
        "closeness": nx.closeness_centrality(graph, distance=weight),
        "harmonic": nx.harmonic_centrality(graph, distance=weight),
        "betweenness": nx.betweenness_centrality(graph, weight=weight),
        "pagerank": nx.pagerank(graph, weight=weight, tol=1e-10, max_iter=1000),
        "clustering": nx.clustering(graph),
        "eccentricity": {
            node: max(reached.values()) if len(reached) == len(graph) else np.inf
            for node, reached in far.items()
        },
    }
    for name, values in expected.items():
        wanted = [values[node] for node in nodes.index]
        tolerance = 1e-5 if name == "pagerank" else 1e-9
        np.testing.assert_allclose(nodes[name], wanted, rtol=tolerance, atol=1e-7, err_msg=name)
    weak = nx.weakly_connected_components if directed else nx.connected_components
    strong = nx.strongly_connected_components if directed else nx.connected_components
    for column, components in {"component": weak, "strong_component": strong}.items():
        groups = nodes.groupby(column).groups.values()
        assert {frozenset(one) for one in groups} == {frozenset(one) for one in components(graph)}
        assert nodes[column].drop_duplicates().tolist() == list(range(len(groups)))
    between = nx.edge_betweenness_centrality(graph, weight=weight)
    between |= {} if directed else {(b, a): value for (a, b), value in between.items()}
    assert len(edges) == graph.number_of_edges()
    for *ends, value in edges[["source", "target", "betweenness"]].itertuples(index=False):
        assert value == pytest.approx(between[tuple(ends)], abs=1e-9)


def write_graphs(kind, graphs):
    """Write small graphs as a kind of input."""
    if kind == "json":
        named = {
            name: {str(a): {str(b): d for b, d in near.items()} for a, near in graph.adj.items()}
            for name, graph in graphs.items()
        }
        lines = [json.dumps({"id": name, "adjacency": near}) for name, near in named.items()]
        Path("graphs.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        return "graphs.jsonl.gz"
    rows = [(name, *edge) for name, one in graphs.items() for edge in one.edges(data="weight")]
    rows += [(name, node, None, None) for name, one in graphs.items() for node in nx.isolates(one)]
    table = pd.DataFrame(rows, columns=["graph_id", "source", "target", "weight"])
    table = table.astype({"target": "Int64"}).sample(frac=1, random_state=1)
    if kind == "parquet":
        table.to_parquet("graphs.parquet", row_group_size=30)
        return "graphs.parquet"
    if kind == "csv":
        table.to_csv("graphs.csv", index=False)
        return "graphs.csv"
    Path("lists").mkdir()
    for name, part in table.groupby("graph_id"):
        text = part.to_csv(
            sep=" ", index=False, header=False, columns=["source", "target", "weight"]
        )
        Path(f"lists/{name}.edgelist").write_text(text)
    return "lists"


@pytest.mark.parametrize(
    ("kind", "weight", "directed"),
    [
        ("json", None, False),
        ("parquet", "weight", True),
        ("csv", "weight", False),
        ("edgelists", None, True),
    ],
)
def test_small_graphs_have_the_centralities_of_networkx(kind, weight, directed):
    graphs = small_graphs(directed)
    words = f"{write_graphs(kind, graphs)} out --{'' if directed else 'un'}directed"
    words += " --format edgelists" if kind == "edgelists" else ""
    words += f" --metrics {METRICS if directed else 'triangles,' + METRICS}"
    report = run(f"centrality {words} {'--weighted' if weight else ''}")
    assert (report["graphs"], report["failed"]) == (len(graphs), 0)
    about, nodes, edges = (
        pd.DataFrame(columns(f"out/{one}")) for one in ("graphs", "nodes", "edges")
    )
    nodes, edges = nodes.astype({"node": int}), edges.astype({"source": int, "target": int})
    about = about.set_index("graph_id")
    for name, graph in graphs.items():
        here = nodes[nodes["graph_id"] == name]
        compare(graph, here, edges[edges["graph_id"] == name], weight)
        assert about["diameter"][name] == here["eccentricity"].max()
        assert about["radius"][name] == here["eccentricity"].min()
        assert (about["nodes"][name], about["edges"][name]) == (len(graph), graph.number_of_edges())
        assert about["average_clustering"][name] == pytest.approx(nx.average_clustering(graph))
        if not directed:
            assert here["triangles"].tolist() == [nx.triangles(graph, one) for one in here["node"]]


@pytest.mark.parametrize("weight", [None, "weight"])
def test_one_graph_has_the_centralities_of_networkx(given, weight):
    words = f"--metrics {METRICS} --distances {'--weighted' if weight else ''}"
    run(f"centrality {given / 'one'} out {words}")
    matrix = adjacency(given / "one", weighted=True)
    graph = nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph)
    ids = columns(given / "one" / "nodes.parquet")["id"]
    nx.relabel_nodes(graph, dict(enumerate(ids)), copy=False)
    compare(graph, *(pd.DataFrame(columns(f"out/{one}")) for one in ("nodes", "edges")), weight)
    (file,) = Path("out/distances").glob("*.npy")
    far = dict(nx.all_pairs_dijkstra_path_length(graph, weight=weight))
    none = np.inf if weight else -1
    expected = [[far[a].get(b, none) for b in ids] for a in ids]
    np.testing.assert_allclose(np.load(file).reshape(len(ids), -1), expected)


def test_samples_of_all_nodes_are_exact_and_of_some_are_near(given):
    found = []
    for name, words in {"exact": "", "all": "--samples 400", "some": "--epsilon 0.2"}.items():
        run(f"centrality {given / 'blocks'} {name} --metrics betweenness {words}")
        found.append(np.asarray(columns(f"{name}/nodes")["betweenness"]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert 0 < np.abs(found[0] - found[2]).max() < 0.2
    assert np.corrcoef(found[0], found[2])[0, 1] > 0.9


def test_graphs_that_fail_are_listed_and_the_others_are_there():
    lines = [{"id": "good", "edges": [[1, 2], [2, 3]]}, {"id": "bad", "edges": [[1, 2, -1.0]]}]
    Path("g.jsonl").write_text("\n".join(json.dumps(one) for one in lines))
    answer = command("centrality g.jsonl out --metrics closeness --weighted --json -q")
    assert (answer.returncode, json.loads(answer.stdout)["failed"]) == (1, 1)
    assert columns("out/failures.parquet")["graph_id"] == ["bad"]
    table = pd.DataFrame(columns("out/nodes")).query("graph_id == 'good'")
    np.testing.assert_allclose(table["closeness"], [2 / 3, 1, 2 / 3])
