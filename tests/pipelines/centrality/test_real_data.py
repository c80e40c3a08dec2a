"""All graphs of PROTEINS, as the paper's benchmark I has them, against NetworkX."""

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, Graph, centrality, etl


@pytest.mark.slow
def test_all_graphs_of_proteins_are_networkxs(data, tmp_path):
    etl(data / "zoo/PROTEINS", tmp_path / "zoo")
    centrality(tmp_path / "zoo", tmp_path / "out", cluster=ClusterSpec(cluster="threads"))
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
    centrality(data / "zoo/PROTEINS", direct, cluster=ClusterSpec(cluster="threads"))
    found = pq.read_table(direct / "nodes")
    assert found["graph"].to_pylist() == table["graph"].to_pylist()
    for metric in ("closeness", "betweenness"):
        np.testing.assert_allclose(
            np.array(found[metric]), np.array(table[metric]), rtol=1e-12, atol=1e-15
        )
