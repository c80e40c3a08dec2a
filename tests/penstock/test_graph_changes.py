"""The comparison of two graphs: every difference and nothing else, at the cost of what changed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from penstock.csr import CSR, EDGE_COLUMNS
from penstock.errors import CorruptFile, InputError
from penstock.graph import Graph
from penstock.graph_changes import RowPrints, changed_features, changed_rows
from penstock.writer import create_graph


def edges_of(random, nodes, count):
    return {
        "sources": random.integers(0, nodes, count),
        "targets": random.integers(0, nodes, count),
        "weights": random.random(count, dtype=np.float32),
        "relations": random.integers(0, 3, count).astype(np.int32),
        "times": random.integers(0, 9, count),
    }


def save(path, edges, ids, features=None, *, shard_edges=50, leave_out=(), relations=3, **about):
    edges = {name: column for name, column in edges.items() if name not in leave_out}
    with create_graph(path) as writer:
        writer.edges(CSR.from_edges(nodes=len(ids), **edges), shard_edges=shard_edges)
        writer.nodes(ids)
        if features is not None:
            writer.features(features)
        if "relations" in edges:
            about["relations"] = tuple(f"r{number}" for number in range(relations))
        writer.manifest = replace(writer.manifest, **about)
    return Graph.open(path)


def row_of(graph, node):
    csr = graph.csr()
    part = slice(csr.indptr[node], csr.indptr[node + 1])
    return [array[part].tolist() for name, array in csr.arrays() if name != "indptr"]


@pytest.mark.parametrize("seed", range(12))
def test_changed_rows_are_those_of_a_naive_comparison(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes, more = int(random.integers(1, 120)), int(random.integers(-20, 20))
    after_nodes = max(1, nodes + more)
    edges = edges_of(random, nodes, int(random.integers(0, 600)))
    after = {name: column.copy() for name, column in edges.items()}
    some = random.random(len(after["sources"])) < random.choice([0, 0.01, 0.3])
    for name, column in edges_of(random, after_nodes, int(some.sum())).items():
        after[name][some] = column
    kept = (after["sources"] < after_nodes) & (after["targets"] < after_nodes)
    kept &= random.random(len(kept)) < random.choice([0.98, 1])
    after = {name: column[kept] for name, column in after.items()}
    ids, after_ids = np.arange(nodes) * 7, np.arange(after_nodes) * 7
    after_ids[random.random(after_nodes) < 0.05] *= -1
    base = save(tmp_path / "base", edges, ids, shard_edges=int(random.choice([20, 50, 1000])))
    graph = save(tmp_path / "graph", after, after_ids, shard_edges=int(random.choice([20, 50])))
    found = changed_rows(base, graph)
    users = base.user_ids().to_pylist(), graph.user_ids().to_pylist()
    expected = [
        node >= nodes
        or users[0][node] != users[1][node]
        or row_of(base, node) != row_of(graph, node)
        for node in range(after_nodes)
    ]
    assert found.tolist() == expected
    assert not changed_rows(graph, graph).any()
    before = RowPrints.of(base, EDGE_COLUMNS)
    for known in (None, before):
        after = RowPrints.of(graph, EDGE_COLUMNS, known=known)
        assert after.changed_since(before, base.path).tolist() == expected


def test_a_column_that_does_not_count_is_not_compared(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    edges, ids = edges_of(random, 40, 200), np.arange(40)
    base = save(tmp_path / "base", edges, ids)
    edges["weights"][7] += 1
    graph = save(tmp_path / "graph", edges, ids)
    assert np.flatnonzero(changed_rows(base, graph)).tolist() == [edges["sources"][7]]
    assert not changed_rows(base, graph, columns=("times",)).any()
    prints = [RowPrints.of(one, ("times",)) for one in (base, graph)]
    assert not prints[1].changed_since(prints[0], base.path).any()


def test_prints_may_hold_what_is_known_of_neighbours(tmp_path: Path) -> None:
    graph = save(tmp_path / "g", edges_of(np.random.default_rng(5), 40, 200), np.arange(40))
    values = np.zeros(40, np.int32)
    before = RowPrints.of(graph, nodes=(values, values))
    values[11] = 7
    after = RowPrints.of(graph, nodes=(np.zeros(40, np.int32), values), known=before)
    expected = [node for node in range(40) if 11 in row_of(graph, node)[0]]
    assert np.flatnonzero(after.changed_since(before, graph.path)).tolist() == expected


def test_prints_of_a_damaged_file_are_refused(tmp_path: Path) -> None:
    graph = save(tmp_path / "g", edges_of(np.random.default_rng(6), 9, 20), np.arange(9))
    prints = RowPrints.of(graph)
    prints.save(tmp_path)
    again = RowPrints.load(tmp_path, json.loads(json.dumps(prints.about)))
    assert not prints.changed_since(again, tmp_path).any()
    np.save(tmp_path / "_rows.npy", prints.bits[0])
    with pytest.raises(CorruptFile):
        RowPrints.load(tmp_path, prints.about)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("seed", range(4))
def test_changed_features_are_those_of_a_naive_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    nodes, after_nodes = 90, int(random.integers(70, 120))
    values = random.random((max(nodes, after_nodes), 6)).astype(np.float32)
    values[random.random(values.shape) < 0.6] = 0
    values[3, 2] = np.nan
    after = values.copy()
    after[random.random(len(after)) < 0.1, 4] += 1
    made = sp.csr_matrix if kind == "sparse" else np.asarray
    edges = edges_of(random, 70, 100)
    graphs = []
    for name, array, count, size in (
        ("base", values, nodes, 700),
        ("graph", after, after_nodes, 500),
    ):
        monkeypatch.setattr("penstock.writer.FEATURE_FILE_BYTES", size)
        graphs.append(save(tmp_path / name, edges, np.arange(count), made(array[:count])))
    expected = [
        node >= nodes or not np.array_equal(values[node], after[node], equal_nan=True)
        for node in range(after_nodes)
    ]
    assert changed_features(*graphs).tolist() == expected
    assert not changed_features(graphs[0], graphs[0]).any()


def test_files_that_are_the_same_in_both_manifests_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.writer.FEATURE_FILE_BYTES", 2000)
    random = np.random.default_rng(2)
    edges, ids = edges_of(random, 400, 4000), np.arange(400)
    features = random.random((400, 10), dtype=np.float32)
    base = save(tmp_path / "base", edges, ids, features, shard_edges=200)
    edges["weights"][9] += 1
    features[250] += 1
    graph = save(tmp_path / "graph", edges, ids, features, shard_edges=200)
    assert graph.num_shards > 10
    prints = RowPrints.of(base, EDGE_COLUMNS)
    same = [name for name, one in graph.manifest.files.items() if base.manifest.files[name] == one]
    (shard,) = {Path(name).parent for name in graph.manifest.files.keys() - {*same}} - {
        Path("features")
    }
    for name in same:
        if Path(name).parent not in (shard, Path()):
            for one in (base, graph):  # whoever opens these files finds no array
                (one.path / name).write_bytes(bytes(graph.manifest.files[name].bytes))
    assert np.flatnonzero(changed_rows(base, graph)).tolist() == [edges["sources"][9]]
    assert np.flatnonzero(changed_features(base, graph)).tolist() == [250]
    now = RowPrints.of(graph, EDGE_COLUMNS, known=prints)
    assert now.changed_since(prints, base.path).sum() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"directed": False},
        {"leave_out": ("weights",)},
        {"leave_out": ("relations",)},
        {"relations": 2},
        {"ids": [str(node) for node in range(30)]},
    ],
    ids=str,
)
def test_a_base_of_another_kind_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    edges = edges_of(np.random.default_rng(3), 30, 100)
    edges["relations"] %= 2
    base = save(tmp_path / "base", edges, np.arange(30))
    given = {"ids": np.arange(30), **change}
    graph = save(tmp_path / "graph", edges, **given)
    with pytest.raises(InputError):
        changed_rows(base, graph)
    with pytest.raises(InputError):
        RowPrints.of(graph).changed_since(RowPrints.of(base), base.path)
    with pytest.raises(InputError):
        changed_features(base, graph)


def test_other_features_are_refused(tmp_path: Path) -> None:
    edges = edges_of(np.random.default_rng(4), 30, 100)
    base = save(tmp_path / "base", edges, np.arange(30), np.ones((30, 3), np.float32))
    for name, features in (("none", None), ("wider", np.ones((30, 4), np.float32))):
        graph = save(tmp_path / name, edges, np.arange(30), features)
        assert not changed_rows(base, graph).any()
        with pytest.raises(InputError):
            changed_features(base, graph)
