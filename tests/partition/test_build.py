"""Parts against a reference built with dicts, and against the whole graph."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import write_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import partition_graph
from penstock.csr import CSR
from penstock.partition.part import Partition

COLUMNS = {"weights": np.float32, "relations": np.int32, "times": np.int64}


@st.composite
def graphs(draw):
    """A directed multigraph with some edge columns, and the number of its parts."""
    nodes = draw(st.integers(1, 24))
    node = st.integers(0, nodes - 1)
    edges = np.array(draw(st.lists(st.tuples(node, node), max_size=70)), np.int64).reshape(-1, 2)
    columns = {
        name: np.arange(len(edges)).astype(dtype) % 7
        for name, dtype in COLUMNS.items()
        if draw(st.booleans())
    }
    csr = CSR.from_edges(edges[:, 0], edges[:, 1], nodes, **columns)
    return csr, draw(st.integers(1, min(nodes, 5)))


def parted(path, csr, k, *, shard_edges=10, features=None, seed=0):
    graph = write_graph(path, csr, shard_edges=shard_edges, features=features)
    partition_graph(graph, k=k, method="random", seed=seed, quiet=True)
    return Partition.of(graph, k)


def reference(csr, parts, rank):
    """Local structure by dicts: what each number means, one edge at a time."""
    owned = [v for v in range(csr.rows) if parts[v] == rank]
    rows = {v: range(csr.indptr[v], csr.indptr[v + 1]) for v in owned}
    foreign = {int(csr.indices[e]) for row in rows.values() for e in row} - {*owned}
    ghosts = sorted(foreign, key=lambda u: (parts[u], u))
    local = {v: i for i, v in enumerate([*owned, *ghosts])}
    edges = [
        sorted(
            (
                (local[int(csr.indices[e])], *(column[e].item() for _, column in csr.columns()))
                for e in row
            ),
            key=lambda edge: edge[0],
        )
        for row in rows.values()
    ]
    return owned, ghosts, edges


@settings(max_examples=15, deadline=None)
@given(graphs(), st.integers(1, 40), st.integers(0, 9))
def test_every_part_is_what_the_dicts_say(case, shard_edges, seed):
    csr, k = case
    with tempfile.TemporaryDirectory() as folder:
        partition = parted(Path(folder) / "g", csr, k, shard_edges=shard_edges, seed=seed)
        partition.validate()
        ranks = [partition.part(rank) for rank in range(k)]
        for rank, part in enumerate(ranks):
            owned, ghosts, rows = reference(csr, partition.assignment, rank)
            assert (part.owned.tolist(), part.ghosts.tolist()) == (owned, ghosts)
            assert [name for name, _ in part.csr.columns()] == [n for n, _ in csr.columns()]
            columns = [part.csr.indices, *(column for _, column in part.csr.columns())]
            assert part.csr.rows == len(owned)
            for row, expected in enumerate(rows):
                span = slice(part.csr.indptr[row], part.csr.indptr[row + 1])
                found = list(zip(*(column[span].tolist() for column in columns), strict=True))
                assert found == expected
            np.testing.assert_array_equal(partition.local[part.owned], np.arange(len(owned)))
            # What is sent is what the receiver stores.
            for peer, slots in part.receive.items():
                sent = ranks[peer].owned[ranks[peer].send[rank]]
                np.testing.assert_array_equal(sent, part.global_ids[slots])
            covered = [i for slots in part.receive.values() for i in range(slots.start, slots.stop)]
            assert covered == list(range(len(part.owned), part.rows))
            assert {peer for peer in range(k) if rank in ranks[peer].send} == set(part.receive)


def some_graph(**columns):
    return CSR.from_edges(*np.random.default_rng(1).integers(0, 200, (2, 1500)), 200, **columns)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_the_owned_rows_of_every_file(sparse, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.writer.FEATURE_FILE_BYTES", 2000)
    monkeypatch.setattr("penstock.partition.build.node_data.CHUNK_BYTES", 100)
    features = np.random.default_rng(0).random((200, 7)).astype(np.float32)
    features[features < 0.6] = 0
    given = sp.csr_matrix(features) if sparse else features
    partition = parted(tmp_path / "g", some_graph(), 3, features=given)
    for rank in range(3):
        found = partition.part(rank).features()
        found = found.toarray() if sparse else found
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, features[partition.assignment == rank])


def test_the_same_bytes_for_any_shards_and_pieces(tmp_path, monkeypatch):
    csr = some_graph(weights=np.arange(1500, dtype=np.float64))
    one = parted(tmp_path / "one", csr, 3, shard_edges=10**6).manifest.files
    monkeypatch.setattr("penstock.partition.build.PIECE_EDGES", 17)
    assert parted(tmp_path / "many", csr, 3, shard_edges=33).manifest.files == one
