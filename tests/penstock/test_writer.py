import os

import numpy as np
import pytest
import scipy.sparse as sp

from penstock import writer as module
from penstock.csr import CSR
from penstock.errors import InputError, OutputExists
from penstock.graph import Graph
from penstock.writer import create_graph, write_features

TRIANGLE = CSR.from_edges(np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1]), 3)


def test_a_graph_is_written_whole_or_not_at_all(tmp_path):
    def fail():
        with create_graph(tmp_path / "g") as writer:
            writer.edges(TRIANGLE)
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(tmp_path) == []
    with create_graph(tmp_path / "g") as writer:
        writer.edges(TRIANGLE)
        writer.nodes(["a", "b", "c"])
        assert not (tmp_path / "g").exists()
    Graph.open(tmp_path / "g").validate()
    with pytest.raises(OutputExists), create_graph(tmp_path / "g"):
        pytest.fail("must not be reached")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_features_are_cut_into_files_of_rows(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(module, "FEATURE_FILE_BYTES", 1000)
    features = sp.random(100, 9, 0.3, "csr", np.float32, random_state=1)
    if kind == "dense":
        features = features.toarray()
    entry, files = write_features(tmp_path, features)
    assert len(entry.starts) > 2
    assert len(files) == len(entry.starts) * (1 if kind == "dense" else 3)
    truth = features if kind == "dense" else features.toarray()
    assert (entry.kind, entry.width, entry.dtype) == (kind, 9, "float32")
    assert entry.nonzeros == np.count_nonzero(truth)
    with create_graph(tmp_path / "g") as writer:
        empty = np.zeros(0, np.int64)
        writer.edges(CSR.from_edges(empty, empty, 100))
        writer.nodes()
        writer.features(features)
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    got = graph.features()
    np.testing.assert_array_equal(got if kind == "dense" else got.toarray(), truth)


def test_rows_that_do_not_match_the_nodes_are_refused(tmp_path):
    def write(ids, features=None):
        with create_graph(tmp_path / "g") as writer:
            writer.edges(TRIANGLE)
            writer.nodes(ids)
            if features is not None:
                writer.features(features)

    with pytest.raises(InputError):
        write(["a", "b"])
    with pytest.raises(InputError):
        write(["a", "b", "c"], np.zeros((4, 2)))
    with pytest.raises(InputError), create_graph(tmp_path / "g") as writer:
        writer.edges(TRIANGLE)
    assert os.listdir(tmp_path) == []
