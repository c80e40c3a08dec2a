"""Vectors of nodes as an array."""

import numpy as np

import penstock
from penstock.pipelines.vectors import Vectors


def test_rows_are_nodes_in_the_order_of_the_graph(make_graph, tmp_path):
    graph = make_graph(nodes=60, edges=300)
    given = {"dim": 8, "walks": 2, "length": 10, "p": 0.5, "deterministic": True, "seed": 3}
    found = penstock.node2vec_array(graph, **given)
    assert found.shape == (60, 8)
    assert found.dtype == np.float32
    penstock.word2vec(graph, tmp_path / "v", app="node2vec", **given)
    vectors = Vectors.open(tmp_path / "v")
    np.testing.assert_array_equal(found, vectors.values[vectors.rows(range(60))])
    np.testing.assert_array_equal(penstock.node2vec_array(graph.csr(), **given), found)
