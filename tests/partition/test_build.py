"""Parts against a reference built with dicts, and against the whole graph."""

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Graph
from penstock.csr import CSR
from penstock.partition.build import build_parts
from penstock.partition.manifest import FORMAT, PartitionManifest
from penstock.partition.part import Partition
from penstock.writer import create_graph

COLUMNS = {"weights": np.float32, "relations": np.int32, "times": np.int64}


@st.composite
def graphs(draw):
    """A directed multigraph with some edge columns, and an assignment without empty parts."""
    nodes = draw(st.integers(1, 24))
    k = draw(st.integers(1, min(nodes, 5)))
    node = st.integers(0, nodes - 1)
    edges = np.array(draw(st.lists(st.tuples(node, node), max_size=70)), np.int64).reshape(-1, 2)
    columns = {
        name: np.arange(len(edges)).astype(dtype) % 7
        for name, dtype in COLUMNS.items()
        if draw(st.booleans())
    }
    csr = CSR.from_edges(edges[:, 0], edges[:, 1], nodes, **columns)
    rest = draw(st.lists(st.integers(0, k - 1), min_size=nodes - k, max_size=nodes - k))
    parts = draw(st.permutations([*range(k), *rest]))
    return csr, np.array(parts, np.int32), k


@contextmanager
def built(csr, parts, k, *, shard_edges=10, features=None, threads=None, directed=True, **nodes):
    with tempfile.TemporaryDirectory() as folder:
        with create_graph(Path(folder) / "g") as writer:
            writer.edges(csr, shard_edges=shard_edges)
            writer.nodes(None, **nodes)
            if features is not None:
                writer.features(features)
            if "label" in nodes:
                kind = "multi" if isinstance(nodes["label"], list) else "class"
                writer.manifest = replace(writer.manifest, labels=kind)
        graph = Graph.open(Path(folder) / "g")
        root = Path(folder) / "parts"
        root.mkdir()
        entries, files = build_parts(graph, parts, k, root, threads=threads)
        about = graph.manifest
        manifest = PartitionManifest(
            k=k,
            method="auto",
            made_by="greedy",
            seed=0,
            steps=(),
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            directed=True,
            graph_sha256="",
            parts=tuple(entries),
            columns=tuple(name for name, _ in csr.columns()),
            features=None if about.features is None else about.features.kind,
            feature_width=0 if about.features is None else about.features.width,
            labels=about.labels,
            splits=bool(about.splits),
            files={entry.name: entry for entry in files},
        )
        FORMAT.save(root, manifest.to_dict())
        yield Partition.open(root)


def reference(csr, parts, rank):
    """Local structure by dicts: what each number means, one edge at a time."""
    owned = [v for v in range(csr.rows) if parts[v] == rank]
    foreign = {
        int(u)
        for v in owned
        for u in csr.indices[csr.indptr[v] : csr.indptr[v + 1]]
        if parts[u] != rank
    }
    ghosts = sorted(foreign, key=lambda u: (parts[u], u))
    local = {v: i for i, v in enumerate([*owned, *ghosts])}
    rows = []
    for v in owned:
        edges = range(csr.indptr[v], csr.indptr[v + 1])
        row = [
            (local[int(csr.indices[e])], *(column[e].item() for _, column in csr.columns()))
            for e in edges
        ]
        rows.append(sorted(row, key=lambda edge: edge[0]))
    return owned, ghosts, rows


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(1, 40))
def test_every_part_is_what_the_dicts_say(graph, shard_edges):
    csr, parts, k = graph
    with built(csr, parts, k, shard_edges=shard_edges) as partition:
        partition.validate()
        np.testing.assert_array_equal(partition.assignment, parts)
        for rank in range(k):
            part = partition.part(rank)
            owned, ghosts, rows = reference(csr, parts, rank)
            assert part.owned.tolist() == owned
            assert part.ghosts.tolist() == ghosts
            columns = [part.csr.indices, *(column for _, column in part.csr.columns())]
            assert [name for name, _ in part.csr.columns()] == [n for n, _ in csr.columns()]
            assert part.csr.rows == len(owned)
            for row, expected in enumerate(rows):
                span = slice(part.csr.indptr[row], part.csr.indptr[row + 1])
                found = list(zip(*(column[span].tolist() for column in columns), strict=True))
                assert found == expected
            np.testing.assert_array_equal(partition.local[part.owned], np.arange(len(owned)))


@settings(max_examples=15, deadline=None)
@given(graphs())
def test_what_is_sent_is_what_the_receiver_stores(graph):
    csr, parts, k = graph
    with built(csr, parts, k) as partition:
        ranks = [partition.part(rank) for rank in range(k)]
        for part in ranks:
            assert part.rank not in part.send
            for peer, slots in part.receive.items():
                wanted = part.global_ids[slots]
                sent = ranks[peer].owned[ranks[peer].send[part.rank]]
                np.testing.assert_array_equal(sent, wanted)
            covered = [i for slots in part.receive.values() for i in range(slots.start, slots.stop)]
            assert covered == list(range(len(part.owned), part.rows))
            senders = {peer for peer in range(k) if part.rank in ranks[peer].send}
            assert senders == set(part.receive)


def some_graph(nodes=200, edges=1500, k=3, **columns):
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, nodes, (2, edges))
    csr = CSR.from_edges(*pairs, nodes, **columns)
    return csr, rng.integers(0, k, nodes).astype(np.int32), k


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_the_owned_rows_of_every_file(sparse, monkeypatch):
    monkeypatch.setattr("penstock.writer.FEATURE_FILE_BYTES", 2000)
    monkeypatch.setattr("penstock.partition.build.node_data._CHUNK_BYTES", 100)
    csr, parts, k = some_graph()
    features = np.random.default_rng(0).random((200, 7)).astype(np.float32)
    features[features < 0.6] = 0
    given_features = sp.csr_matrix(features) if sparse else features
    with built(csr, parts, k, features=given_features) as partition:
        for rank in range(k):
            found = partition.part(rank).features()
            found = found.toarray() if sparse else found
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, features[parts == rank])


def test_the_same_bytes_for_any_threads_shards_and_pieces(monkeypatch):
    csr, parts, k = some_graph(weights=np.arange(1500, dtype=np.float64))
    with built(csr, parts, k, shard_edges=10**6, threads=1) as partition:
        one = partition.manifest.files
    monkeypatch.setattr("penstock.partition.build._PIECE_EDGES", 17)
    with built(csr, parts, k, shard_edges=33, threads=3) as partition:
        assert partition.manifest.files == one
