import os

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import write_graph

from penstock.csr import CSR
from penstock.errors import CorruptFile, InputError, OutputExists, UsageError
from penstock.graph import Graph
from penstock.writer import create_graph

# -- nodes --------------------------------------------------------------------------------------


def test_unknown_ids_are_minus_one_and_wrong_ones_an_error(make_graph):
    graph = make_graph(100, 300)
    for ids in ([3, 100, 0, 3, None], [*range(40), 7, 100, None], [*range(100)]):
        found = [-1 if one in (100, None) else one for one in ids]
        assert graph.internal_ids(ids).tolist() == found
    assert graph.internal_ids(["3"]).tolist() == [3]
    for wrong in (["ann"], [True, False]):
        with pytest.raises(UsageError):
            graph.internal_ids(wrong)


def test_splits_are_masks_that_do_not_meet(make_graph):
    graph = make_graph(labels=4)
    masks = [graph.split(name) for name in ("train", "valid", "test")]
    assert sum(masks).tolist() == [1] * 100
    assert [int(mask.sum()) for mask in masks] == list(graph.manifest.splits.values())
    with pytest.raises(UsageError):
        graph.split("dev")
    with pytest.raises(UsageError):
        graph.node_column("colour")


# -- writing -----------------------------------------------------------------------------------

TRIANGLE = CSR.from_edges(np.array([0, 0, 1, 1, 2, 2]), np.array([1, 2, 0, 2, 0, 1]), 3)


def test_a_graph_is_written_whole_or_not_at_all(tmp_path):
    def attempt(error, ids=None, features=None):
        with pytest.raises(error), create_graph(tmp_path / "g") as writer:
            writer.edges(TRIANGLE)
            if ids is not None:
                writer.nodes(ids)
            if features is not None:
                writer.features(features)
            if error is RuntimeError:
                raise RuntimeError("midway")
        assert os.listdir(tmp_path) == []

    attempt(RuntimeError)
    attempt(InputError)  # without nodes
    attempt(InputError, ["a", "b"])
    attempt(InputError, ["a", "b", "c"], np.zeros((4, 2)))
    with create_graph(tmp_path / "g") as writer:
        writer.edges(TRIANGLE)
        writer.nodes(["a", "b", "c"])
        assert not (tmp_path / "g").exists()
    Graph.open(tmp_path / "g").validate()
    with pytest.raises(OutputExists), create_graph(tmp_path / "g"):
        pytest.fail("must not be reached")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_features_are_cut_into_files_of_rows(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("penstock.writer.FEATURE_FILE_BYTES", 1000)
    features = sp.random(100, 9, 0.3, "csr", np.float32, random_state=1)
    truth = features.toarray()
    csr = CSR.from_edges(*np.zeros((2, 0), np.int64), 100)
    graph = write_graph(tmp_path / "g", csr, features=truth if kind == "dense" else features)
    graph.validate()
    entry, got = graph.manifest.features, graph.features()
    assert len(entry.starts) > 2
    assert (entry.kind, entry.width, entry.dtype) == (kind, 9, "float32")
    assert entry.nonzeros == np.count_nonzero(truth)
    np.testing.assert_array_equal(got if kind == "dense" else got.toarray(), truth)


# -- broken graphs: found by validate -----------------------------------------------------------


def csr(indptr, indices, **columns):
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    return CSR(np.asarray(indptr, np.int64), np.asarray(indices, np.int32), **arrays)


@pytest.mark.parametrize(
    ("rows", "manifest"),
    [
        (csr([0, 1, 1, 3], [1, 0, 3]), {}),  # ids in 0 .. 2
        (csr([0, 1, 1, 3], [1, 0, -1]), {}),
        (csr([0, 2, 1, 3], [1, 2, 0]), {}),  # rows start in order
        (csr([0, 1, 1, 2], [1, 0], relations=[0, 2]), {"relations": ("a", "b")}),
    ],
)
def test_inconsistent_rows_are_found(tmp_path, rows, manifest):
    graph = write_graph(tmp_path / "g", rows, **manifest)
    with pytest.raises(CorruptFile):
        graph.validate()


def test_inconsistent_features_are_found(tmp_path):
    matrix = sp.csr_matrix(np.eye(3, 2, dtype=np.float32))
    matrix.indices[1] = 7
    graph = write_graph(tmp_path / "g", TRIANGLE, features=matrix)
    with pytest.raises(CorruptFile):
        graph.validate()
