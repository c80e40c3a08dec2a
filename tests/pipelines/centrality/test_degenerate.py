"""Graphs without nodes or edges, options in pairs, and graphs too large for a worker."""

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
