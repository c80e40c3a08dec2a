"""TU folders against NetworkX: PROTEINS where it is, small folders made here, broken ones."""

import gzip

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.errors import InputError, UsageError
from penstock.graph import Graph
from penstock.pipelines.etl import etl

# Graph 1 is a triangle 1-2-3 with node 4 attached, graph 2 has no nodes, graph 3 a loop at 6.
SMALL = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 1\n1, 4\n5, 6\n6, 5\n6, 6\n",
    "graph_indicator": "1\n1\n1\n1\n3\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "graph_attributes": "0.5, 1\n1.5, 2\n2.5, 3\n",
    "node_labels": "7\n0\n7\n3\n0\n0\n",
    "node_attributes": "1.5, 2\n0, -1e3\n3, 4\n5, 6\n0, 0\n0, 9\n",
    "edge_labels": "4\n4\n4\n4\n9\n9\n4\n4\n9\n9\n9\n",
}


@pytest.fixture
def make_folder(tmp_path):
    """Write SMALL with some files changed, or left out (None)."""

    def make(*, name="SMALL", zipped=False, **changes):
        folder = tmp_path / "tu"
        folder.mkdir(exist_ok=True)
        for kind, text in (SMALL | changes).items():
            if text is None:
                continue
            path = folder / f"{name}_{kind}.txt"
            if zipped:
                path.with_suffix(".txt.gz").write_bytes(gzip.compress(text.encode()))
            else:
                path.write_text(text)
        (folder / "README.txt").write_text("not data\n")
        return folder

    return make


def assert_graphs(graph, expected):
    csr, ids = graph.csr(), np.asarray(graph.user_ids())
    rows = pq.read_table(graph.path / "graphs.parquet").to_pylist()
    assert [row["id"] for row in rows] == list(range(1, len(expected) + 1))
    assert graph.manifest.graphs == len(expected)
    for row, truth in zip(rows, expected, strict=True):
        first, stop = row["first"], row["first"] + row["nodes"]
        assert ids[first:stop].tolist() == sorted(truth)
        assert row["edges"] == 2 * truth.number_of_edges()
        for node in range(first, stop):
            neighbours = ids[csr.indices[csr.indptr[node] : csr.indptr[node + 1]]].tolist()
            assert neighbours == sorted(truth[int(ids[node])])


@pytest.mark.parametrize("zipped", [False, True])
def test_small_folder(make_folder, tmp_path, zipped):
    report = etl(make_folder(zipped=zipped), tmp_path / "graph", self_loops="drop")
    graph = Graph.open(tmp_path / "graph")
    graph.validate()
    arcs = np.array([line.split(",") for line in SMALL["A"].splitlines()], int)
    whole = nx.empty_graph(range(1, 7))
    whole.add_edges_from((int(u), int(v)) for u, v in arcs if u != v)
    assert_graphs(graph, [whole.subgraph(some) for some in ([1, 2, 3, 4], [], [5, 6])])
    assert (report.graphs, report.rows_read, report.loops_dropped) == (3, 12, 1)
    graphs = pq.read_table(graph.path / "graphs.parquet")
    assert graphs["label"].to_pylist() == [1, -1, 1]
    assert graphs["attributes"].to_pylist() == [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]
    assert np.asarray(graph.node_column("graph")).tolist() == [0, 0, 0, 0, 2, 2]
    assert graph.labels().tolist() == [2, 0, 2, 1, 0, 0]
    assert graph.manifest.classes == ("0", "3", "7")
    assert graph.features().tolist() == [[1.5, 2], [0, -1000], [3, 4], [5, 6], [0, 0], [0, 9]]
    csr = graph.csr()
    names = np.array(graph.manifest.relations)
    kinds = {
        (u, v): r
        for u, v, r in zip(csr.sources() + 1, csr.indices + 1, names[csr.relations], strict=True)
    }
    assert kinds == {
        (1, 2): "4",
        (2, 1): "4",
        (2, 3): "4",
        (3, 2): "4",
        (1, 3): "9",
        (3, 1): "9",
        (1, 4): "4",
        (4, 1): "4",
        (5, 6): "9",
        (6, 5): "9",
    }


def test_dropped_nodes_take_their_data_along(make_folder, tmp_path):
    report = etl(make_folder(edge_labels=None), tmp_path / "graph", min_degree=2)
    graph = Graph.open(tmp_path / "graph")
    graph.validate()
    assert graph.user_ids().to_pylist() == [1, 2, 3]
    assert graph.features().tolist() == [[1.5, 2], [0, -1000], [3, 4]]
    assert graph.labels().tolist() == [2, 0, 2]
    graphs = pq.read_table(graph.path / "graphs.parquet")
    assert graphs["nodes"].to_pylist() == [3, 0, 0]
    assert graphs["edges"].to_pylist() == [6, 0, 0]
    assert report.nodes_dropped == 3


def test_files_that_may_be_missing(make_folder, tmp_path):
    optional = ("graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels")
    etl(make_folder(**dict.fromkeys(optional)), tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert (graph.manifest.graphs, graph.num_nodes, graph.features()) == (3, 6, None)
    names = pq.read_schema(graph.path / "graphs.parquet").names
    assert names == ["id", "first", "nodes", "edges"]


def test_values_to_regress(make_folder, tmp_path):
    folder = make_folder(node_labels="0.5\n1\n2\n3\n4\n5\n", graph_labels="1.5\n2\n0\n")
    etl(folder, tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert graph.manifest.labels == "value"
    assert graph.labels().tolist() == [0.5, 1, 2, 3, 4, 5]
    labels = pq.read_table(graph.path / "graphs.parquet")["label"].to_pylist()
    assert labels == [1.5, 2.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"graph_indicator": None}, "SMALL_graph_indicator.txt"),
        ({"A": "1, 2\n2, 5\n", "edge_labels": None}, "A.txt, row 2"),
        ({"A": "0, 2\n", "edge_labels": None}, "A.txt, row 1"),
        ({"A": "1, 2\n2, x\n"}, "A.txt, row 2"),
        ({"graph_indicator": "1\n1\n1\n1\n3\n4\n"}, "indicator.txt, row 6"),
        ({"graph_attributes": "1\n"}, "graph_attributes.txt"),
        ({"graph_indicator": "1\n1\n2\n1\n3\n3\n"}, "indicator.txt, row 4"),
        ({"node_labels": "7\n0\n7\n"}, "node_labels.txt"),
        ({"node_attributes": "1\n2\n3\nnan\n5\n6\n"}, "node_attributes.txt, row 4"),
        ({"edge_labels": "4.5\n" * 11}, "edge_labels.txt, row 1"),
    ],
)
def test_bad_folders_name_file_and_row(make_folder, tmp_path, changes, named):
    with pytest.raises(InputError) as error:
        etl(make_folder(**changes), tmp_path / "graph")
    assert named in str(error.value)
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize(("how", "filled"), [("zero", [0.0, 0.0]), ("mean", [3.0, 2.5])])
def test_missing_node_attributes_are_filled(make_folder, tmp_path, how, filled):
    folder = make_folder(node_attributes="1, 0\n2, 1\nnan, 2\n4, 3\n5, \n3, 6.5\n")
    with pytest.raises(InputError, match="row 3"):
        etl(folder, tmp_path / "graph")
    report = etl(folder, tmp_path / "graph", missing_features=how)
    features = Graph.open(tmp_path / "graph").features()
    assert features[[2, 4]].tolist() == [[filled[0], 2], [5, filled[1]]]
    assert report.features_filled == 2
    folder = make_folder(node_attributes="1\ninf\n3\nnan\n5\n6\n")
    with pytest.raises(InputError, match=r"node_attributes.txt, row 2"):
        etl(folder, tmp_path / "graph", missing_features=how, overwrite=True)


def test_options_without_meaning_are_refused(make_folder, tmp_path):
    for name, value in {"source": "a", "on_bad_rows": "skip", "label_kind": "multi"}.items():
        with pytest.raises(UsageError):
            etl(make_folder(), tmp_path / "graph", **{name: value})
