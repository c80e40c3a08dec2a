"""Graphs of PROTEINS, as in the paper's benchmark I, and of control flow, against NetworkX."""

import gzip

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Graph, centrality, etl


@pytest.mark.slow
def test_all_graphs_of_proteins_are_networkxs(data, tmp_path):
    etl(data / "zoo/PROTEINS", tmp_path / "zoo")
    centrality(tmp_path / "zoo", tmp_path / "out")
    rows = pq.read_table(tmp_path / "zoo/graphs.parquet").to_pylist()
    csr, table = Graph.open(tmp_path / "zoo").csr(), pq.read_table(tmp_path / "out/nodes")
    assert len(rows) == 1113
    assert len(table) == csr.rows
    for row in rows:
        nodes = range(row["first"], row["first"] + row["nodes"])
        graph = nx.Graph()
        graph.add_nodes_from(nodes)
        for node in nodes:
            ends = csr.indices[csr.indptr[node] : csr.indptr[node + 1]]
            graph.add_edges_from((node, int(end)) for end in ends)
        for metric, function in (
            ("closeness", nx.closeness_centrality),
            ("betweenness", nx.betweenness_centrality),
        ):
            found, wanted = table[metric][nodes.start : nodes.stop], function(graph)
            np.testing.assert_allclose(
                np.array(found), [wanted[node] for node in nodes], rtol=1e-9, atol=1e-13
            )
    direct = tmp_path / "direct"
    centrality(data / "zoo/PROTEINS", direct)
    found = pq.read_table(direct / "nodes")
    assert found["graph_id"].to_pylist() == table["graph_id"].to_pylist()
    for metric in ("closeness", "betweenness"):
        np.testing.assert_allclose(
            np.array(found[metric]), np.array(table[metric]), rtol=1e-12, atol=1e-15
        )


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-9), ("float32", 1e-5)])
def test_all_graphs_of_a_control_flow_file_are_networkxs(data, tmp_path, dtype, near):
    zoo, rows = {}, []
    path = min((data / "zoo/openssl-cfg").glob("*.txt.gz"))
    with gzip.open(path, "rt") as file:
        for number in range(int(file.readline())):
            size = int(file.readline().split()[0])
            zoo[number] = graph = nx.DiGraph()
            graph.add_nodes_from(range(size))
            for node in range(size):
                numbers = [int(each) for each in file.readline().split()[7:]]
                graph.add_edges_from((node, other) for other in numbers[1 : 1 + numbers[0]])
            rows += [(number, node, None) for node in graph]
            rows += [(number, a, b) for a, b in graph.edges]
    names = ("graph_id", "source", "target")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    pq.write_table(table, tmp_path / "edges.parquet")
    centrality(tmp_path / "edges.parquet", tmp_path / "out", directed=True, dtype=dtype)
    found = pq.read_table(tmp_path / "out/nodes").to_pylist()
    values = {(row["graph_id"], row["node"]): row for row in found}
    assert len(values) == len(found) == sum(map(len, zoo.values()))
    for number, graph in zoo.items():
        for metric, wanted in (
            ("closeness", nx.closeness_centrality(graph)),
            ("betweenness", nx.betweenness_centrality(graph)),
        ):
            mine = [values[number, node][metric] for node in graph]
            np.testing.assert_allclose(
                mine, [wanted[node] for node in graph], rtol=near, atol=near * 1e-4
            )
