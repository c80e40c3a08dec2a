import os
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from penstock import writer as module
from penstock.csr import CSR
from penstock.errors import InputError, OutputExists
from penstock.graph import Graph
from penstock.writer import create_graph, row_cuts, write_features

TRIANGLE = CSR.from_edges(np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1]), 3)


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(1, 25))
def test_cuts_are_consecutive_and_within_bounds(degrees, shard_edges):
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)]).astype(np.int64)
    cuts = row_cuts(indptr, shard_edges)
    assert cuts[0][0] == 0
    assert cuts[-1][1] == len(degrees)
    assert all(a[1] == b[0] for a, b in pairwise(cuts))
    for start, stop in cuts:
        assert stop == start + 1 or indptr[stop] - indptr[start] <= shard_edges
        assert stop > start or not degrees


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


def test_the_same_content_is_the_same_bytes(tmp_path):
    for name in "ab":
        with create_graph(tmp_path / name) as writer:
            writer.edges(TRIANGLE, shard_edges=2)
            writer.nodes()
    a, b = (Graph.open(tmp_path / name).manifest for name in "ab")
    assert a == b
    assert len(a.shards) == 3


def test_node_columns_are_written_and_splits_are_counted(tmp_path):
    with create_graph(tmp_path / "g") as writer:
        writer.edges(TRIANGLE)
        writer.nodes(["a", "b", "c"], label=[2, None, 0], split=[0, None, 2], graph=None)
    table = pq.read_table(tmp_path / "g/nodes.parquet")
    assert table.to_pydict() == {
        "id": ["a", "b", "c"],
        "label": [2, None, 0],
        "split": [0, None, 2],
    }
    assert Graph.open(tmp_path / "g").manifest.splits == {"train": 1, "valid": 0, "test": 1}


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
