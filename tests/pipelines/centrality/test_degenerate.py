"""Graphs without nodes or edges, options in pairs, and graphs too large for a worker."""

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import centrality, etl

METRICS = (
    "closeness,harmonic,betweenness,edge-betweenness,eccentricity,diameter,pagerank,component,"
    "strong-component,triangles,clustering"
)


@pytest.mark.parametrize("more", [{}, {"distances": True}, {"weighted": True}])
@pytest.mark.parametrize(
    "rows",
    [
        [(0, None, None), (1, 4, None), (2, None, None)],  # no nodes, one node, no nodes
        [(0, 1, 1), (0, 2, 2), (1, 5, 5)],  # self loops alone
        [(0, 1, None), (0, 2, None), (0, 3, None)],  # no edges
    ],
    ids=["small", "loops", "no edges"],
)
def test_degenerate_graphs(tmp_path, rows, more):
    kinds = {"graph_id": pa.int64(), "source": pa.int64(), "target": pa.int64()}
    table = {n: pa.array([row[i] for row in rows], kinds[n]) for i, n in enumerate(kinds)}
    table["weight"] = pa.array([1.0] * len(rows), pa.float64())
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    report = centrality(tmp_path / "e.parquet", tmp_path / "out", metrics=METRICS, **more)
    assert report.failed == 0
    assert report.graphs == len({row[0] for row in rows})
    found = pq.read_table(tmp_path / "out/nodes").to_pylist()
    ends = {(row[0], end) for row in rows for end in row[1:] if end is not None}
    assert {(row["graph_id"], row["node"]) for row in found} == ends
    for row in found:
        assert (row["closeness"], row["betweenness"], row["triangles"]) == (0, 0, 0)
    graphs = pq.read_table(tmp_path / "out/graphs").to_pylist()
    for row in graphs:
        size = len({end for graph, end in ends if graph == row["graph_id"]})
        assert (row["nodes"], row["components"]) == (size, size)
    assert sum(row["edges"] for row in graphs) == sum(a is not None and a == b for _, a, b in rows)


@pytest.mark.parametrize("empty", ["first", "middle", "last", "all"])
def test_graphs_of_a_zoo_that_have_lost_their_nodes(tmp_path, empty):
    """What etl drops leaves graphs without nodes, maybe where a shard ends."""
    loops = {"first": [0], "middle": [1, 2], "last": [3], "all": [0, 1, 2, 3]}[empty]
    rows = [(g, 1, 1 if g in loops else 2) for g in range(4)]
    table = {name: [row[i] for row in rows] for i, name in enumerate(("graph_id", "src", "dst"))}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    options = {"format": "zoo", "self_loops": "drop", "drop_isolated": True}
    etl(tmp_path / "e.parquet", tmp_path / "zoo", **options)
    report = centrality(tmp_path / "zoo", tmp_path / "out", metrics=METRICS)
    assert (report.graphs, report.failed) == (4, 0)
    found = pq.read_table(tmp_path / "out/nodes").to_pylist()
    assert [row["closeness"] for row in found] == [1.0] * len(found)
    assert sorted({row["graph_id"] for row in found}) == sorted(set(range(4)) - set(loops))


PAIRS = {
    "metrics": METRICS.replace("triangles,", ""),
    "weighted": True,
    "directed": True,
    "wf_improved": False,
    "normalized": False,
    "endpoints": True,
    "distances": True,
    "dtype": "float32",
    "scratch": "scratch",
}


# Each with all that follow; two of them for a quick run.
@pytest.mark.parametrize(
    "name",
    [
        name if name in ("weighted", "dtype") else pytest.param(name, marks=pytest.mark.slow)
        for name in PAIRS
    ],
)
def test_options_in_pairs(tmp_path, name, monkeypatch):
    """Any two go together, and neither changes what the other means."""
    monkeypatch.chdir(tmp_path)
    graph = nx.gnp_random_graph(20, 0.15, seed=2)
    rows = [(7, a, b, 1.0 + (a + b) % 3) for a, b in graph.edges]
    names = ("graph_id", "source", "target", "weight")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    pq.write_table(table, tmp_path / "e.parquet")
    for other in list(PAIRS)[list(PAIRS).index(name) :]:
        given = {name: PAIRS[name], other: PAIRS[other]}
        out = tmp_path / f"out-{other}"
        centrality(tmp_path / "e.parquet", out, **given)
        true = nx.DiGraph() if given.get("directed") else nx.Graph()
        true.add_weighted_edges_from(row[1:] for row in rows)
        weight = "weight" if given.get("weighted") else None
        near = nx.closeness_centrality(
            true, distance=weight, wf_improved=given.get("wf_improved", True)
        )
        between = nx.betweenness_centrality(
            true,
            weight=weight,
            normalized=given.get("normalized", True),
            endpoints=given.get("endpoints", False),
        )
        found = {row["node"]: row for row in pq.read_table(out / "nodes").to_pylist()}
        for node in true:
            assert found[node]["closeness"] == pytest.approx(near[node], rel=1e-9)
            assert found[node]["betweenness"] == pytest.approx(between[node], rel=1e-9, abs=1e-13)
        if given.get("distances"):
            matrix = np.load(out / "distances/00000.npy").reshape(len(found), -1)
            far = dict(nx.shortest_path_length(true, weight=weight))
            order = sorted(true)
            none = np.inf if weight else -1
            wanted = [[far[a].get(b, none) for b in order] for a in order]
            np.testing.assert_allclose(matrix, wanted)
