"""centrality, of many small graphs and of one, against NetworkX."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from golden import adjacency, columns, command, run

import penstock

METRICS = (
    "closeness,harmonic,betweenness,edge-betweenness,eccentricity,diameter,pagerank,component,"
    "strong-component,clustering"
)


def weighted(graph: nx.Graph) -> nx.Graph:
    for number, edge in enumerate(sorted(graph.edges)):
        graph.edges[edge]["weight"] = 1 + number * 7 % 5 / 2
    return graph


def small_graphs(directed: bool) -> dict[str, nx.Graph]:
    """Return graphs of many shapes: connected or not, paths, stars, nodes without edges."""
    made = [nx.gnm_random_graph(4 + n, 3 * n, seed=n, directed=directed) for n in range(8)]
    kind = nx.DiGraph if directed else nx.Graph
    made += [kind(nx.path_graph(7, kind)), kind(nx.star_graph(5)), nx.complete_graph(5, kind)]
    lonely, apart = kind(), kind()
    lonely.add_node(0)
    apart.add_nodes_from([0, 1])
    return {f"g{n:02d}": weighted(one) for n, one in enumerate([*made, lonely, apart])}


def of_nodes(graph: nx.Graph, weight: str | None) -> dict[str, dict[Any, float]]:
    """Return what NetworkX computes of nodes."""
    found = {
        "closeness": nx.closeness_centrality(graph, distance=weight),
        "harmonic": nx.harmonic_centrality(graph, distance=weight),
        "betweenness": nx.betweenness_centrality(graph, weight=weight),
        "pagerank": nx.pagerank(graph, weight=weight, tol=1e-10, max_iter=1000),
        "clustering": nx.clustering(graph),
        "eccentricity": {},
    }
    for node in graph:
        reached = nx.shortest_path_length(graph, node, weight=weight)
        whole = len(reached) == len(graph)
        found["eccentricity"][node] = max(reached.values()) if whole else np.inf
    return found


def compare(graph: nx.Graph, nodes: pd.DataFrame, edges: pd.DataFrame, weight: str | None) -> None:
    nodes = nodes.set_index("node")
    assert set(nodes.index) == set(graph)
    for name, values in of_nodes(graph, weight).items():
        tolerance = 1e-5 if name == "pagerank" else 1e-9
        expected = [values[node] for node in nodes.index]
        np.testing.assert_allclose(nodes[name], expected, rtol=tolerance, atol=1e-7, err_msg=name)
    for column, components in (
        (
            "component",
            nx.weakly_connected_components if graph.is_directed() else nx.connected_components,
        ),
        (
            "strong_component",
            nx.strongly_connected_components if graph.is_directed() else nx.connected_components,
        ),
    ):
        groups = nodes.groupby(column).groups.values()
        assert {frozenset(one) for one in groups} == {frozenset(one) for one in components(graph)}
        assert nodes[column].drop_duplicates().tolist() == list(range(len(groups)))
    between = nx.edge_betweenness_centrality(graph, weight=weight)
    if not graph.is_directed():
        between |= {(b, a): value for (a, b), value in between.items()}
    assert len(edges) == graph.number_of_edges()
    for source, target, value in edges[["source", "target", "betweenness"]].itertuples(index=False):
        assert value == pytest.approx(between[source, target], abs=1e-9)


def write_graphs(kind: str, graphs: dict[str, nx.Graph], folder: Path) -> str:
    """Write small graphs as a kind of input."""
    if kind == "json":
        lines = [
            json.dumps(
                {
                    "id": name,
                    "adjacency": {
                        str(a): {str(b): d for b, d in near.items()}
                        for a, near in graph.adj.items()
                    },
                }
            )
            for name, graph in graphs.items()
        ]
        (folder / "graphs.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        return "graphs.jsonl.gz"
    if kind == "parquet":
        rows = [
            (name, a, b, d["weight"])
            for name, graph in graphs.items()
            for a, b, d in graph.edges(data=True)
        ]
        rows += [
            (name, a, None, None) for name, graph in graphs.items() for a in nx.isolates(graph)
        ]
        table = pd.DataFrame(rows, columns=["graph_id", "source", "target", "weight"])
        table = table.astype({"target": "Int64"}).sample(frac=1, random_state=1)
        table.to_parquet(folder / "graphs.parquet", row_group_size=30)
        return "graphs.parquet"
    (folder / "lists").mkdir()
    for name, graph in graphs.items():
        text = "".join(f"{a} {b} {d['weight']}\n" for a, b, d in graph.edges(data=True))
        text += "".join(f"{node}\n" for node in nx.isolates(graph))
        (folder / "lists" / f"{name}.edgelist").write_text(text)
    return "lists"


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("kind", ["json", "parquet", "edgelists"])
def test_small_graphs_have_the_centralities_of_networkx(
    tmp_path: Path, kind: str, lengths: bool, directed: bool
) -> None:
    graphs = small_graphs(directed)
    words = write_graphs(kind, graphs, tmp_path)
    words += " --weighted" if lengths else ""
    words += " --directed" if directed else " --undirected"
    metrics = METRICS if directed else f"{METRICS},triangles"
    report = run(
        f"centrality {words} out --metrics {metrics} --tol 1e-9 --max-iter 1000", folder=tmp_path
    )
    assert (report["graphs"], report["failed"]) == (len(graphs), 0)
    tables = {
        one: pd.DataFrame(columns(tmp_path / "out" / one)) for one in ("nodes", "graphs", "edges")
    }
    tables["nodes"]["node"] = tables["nodes"]["node"].astype(int)
    tables["edges"] = tables["edges"].astype({"source": int, "target": int})
    about = tables["graphs"].set_index("graph")
    for name, graph in graphs.items():
        nodes, edges = (tables[one][tables[one]["graph"] == name] for one in ("nodes", "edges"))
        compare(graph, nodes, edges, "weight" if lengths else None)
        far = nodes["eccentricity"]
        assert (about["diameter"][name], about["radius"][name]) == (far.max(), far.min())
        assert about["nodes"][name] == len(graph)
        assert about["edges"][name] == graph.number_of_edges()
        assert about["average_clustering"][name] == pytest.approx(nx.average_clustering(graph))
        if not directed:
            assert nodes["triangles"].sum() == sum(nx.triangles(graph).values())


@pytest.mark.parametrize("lengths", [False, True])
def test_one_graph_has_the_centralities_of_networkx(
    tmp_path: Path, given: Path, lengths: bool
) -> None:
    words = (
        f"centrality {given / 'one'} out --metrics {METRICS} --tol 1e-9 --max-iter 1000 --distances"
    )
    run(words + (" --weighted" if lengths else ""), folder=tmp_path)
    matrix = adjacency(given / "one", weighted=True)
    ids = columns(given / "one" / "nodes.parquet")["id"]
    graph = nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph)
    nx.relabel_nodes(graph, dict(enumerate(ids)), copy=False)
    nodes, edges = (pd.DataFrame(columns(tmp_path / "out" / one)) for one in ("nodes", "edges"))
    compare(graph, nodes, edges, "weight" if lengths else None)
    (file,) = (tmp_path / "out" / "distances").glob("*.npy")
    found = np.load(file).reshape(len(ids), len(ids))
    for row, (_, reached) in zip(
        found,
        nx.all_pairs_dijkstra_path_length(graph, weight="weight" if lengths else None),
        strict=True,
    ):
        for column, one in enumerate(nodes["node"]):
            assert row[column] == pytest.approx(reached.get(one, np.inf if lengths else -1))


def test_samples_of_all_nodes_are_exact_and_of_some_are_near(tmp_path: Path, given: Path) -> None:
    words = f"centrality {given / 'blocks'} {{}} --metrics betweenness"
    for name, more in {"exact": "", "all": " --samples 400", "some": " --epsilon 0.1"}.items():
        run(words.format(name) + more, folder=tmp_path)
    exact, every, some = (
        np.asarray(columns(tmp_path / name / "nodes")["betweenness"])
        for name in ("exact", "all", "some")
    )
    np.testing.assert_allclose(exact, every, rtol=1e-9)
    assert np.abs(exact - some).max() < 0.1
    assert np.corrcoef(exact, some)[0, 1] > 0.9


def test_networkx_computes_with_the_backend(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nx.config, "warnings_to_ignore", {"cache"})
    matrix = adjacency(given / "one", weighted=True)
    graph = nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph)
    for name in (
        "betweenness_centrality",
        "closeness_centrality",
        "harmonic_centrality",
        "pagerank",
    ):
        function = getattr(nx, name)
        assert function(graph, backend="penstock") == pytest.approx(function(graph), abs=1e-6)
    one = nx.Graph(graph)
    assert nx.triangles(one, backend="penstock") == nx.triangles(one)
    assert nx.transitivity(one, backend="penstock") == pytest.approx(nx.transitivity(one))


def test_graphs_that_fail_are_listed_and_the_others_are_there(tmp_path: Path) -> None:
    lines = [{"id": "good", "edges": [[1, 2], [2, 3]]}, {"id": "bad", "edges": [[1, 2, -1.0]]}]
    (tmp_path / "g.jsonl").write_text("\n".join(json.dumps(one) for one in lines))
    with pytest.raises(penstock.PenstockError):
        penstock.centrality(tmp_path / "missing.jsonl", tmp_path / "out")
    answer = command(
        "centrality g.jsonl out --metrics closeness --weighted --json -q", folder=tmp_path
    )
    assert answer.returncode == 1
    assert json.loads(answer.stdout)["failed"] == 1
    assert columns(tmp_path / "out" / "failures.parquet")["graph"] == ["bad"]
    table = pd.DataFrame(columns(tmp_path / "out" / "nodes")).query("graph == 'good'")
    np.testing.assert_allclose(table["closeness"], [2 / 3, 1, 2 / 3])
