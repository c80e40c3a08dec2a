"""The comparison of two graphs: every difference and nothing else."""

import json

import numpy as np
import pytest
from graphs import write_graph

from penstock.csr import CSR, EDGE_COLUMNS
from penstock.errors import CorruptFile
from penstock.graph_changes import RowPrints


def edges_of(random, nodes, count):
    return {
        "sources": random.integers(0, nodes, count),
        "targets": random.integers(0, nodes, count),
        "weights": random.random(count, dtype=np.float32),
        "relations": random.integers(0, 3, count).astype(np.int32),
        "times": random.integers(0, 9, count),
    }


def save(path, edges, ids, *, shard_edges=50, leave_out=(), relations=3, **about):
    edges = {name: column for name, column in edges.items() if name not in leave_out}
    if "relations" in edges:
        about["relations"] = tuple(f"r{number}" for number in range(relations))
    csr = CSR.from_edges(nodes=len(ids), **edges)
    return write_graph(path, csr, ids, shard_edges=shard_edges, **about)


def rows_of(graph):
    csr = graph.csr()
    arrays = [array for name, array in csr.arrays() if name != "indptr"]
    parts = map(slice, csr.indptr[:-1], csr.indptr[1:])
    return [[array[part].tolist() for array in arrays] for part in parts]


@pytest.mark.parametrize("seed", range(8))
def test_changed_rows_are_those_of_a_naive_comparison(tmp_path, seed):
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
    users = base.user_ids().to_pylist(), graph.user_ids().to_pylist()
    rows = rows_of(base), rows_of(graph)
    expected = [
        node >= nodes or users[0][node] != users[1][node] or rows[0][node] != rows[1][node]
        for node in range(after_nodes)
    ]
    before = RowPrints.of(base, EDGE_COLUMNS)
    after = RowPrints.of(graph, EDGE_COLUMNS)
    assert after.changed_since(before, base.path).tolist() == expected


def test_a_column_that_does_not_count_is_not_compared(tmp_path):
    random = np.random.default_rng(1)
    edges, ids = edges_of(random, 40, 200), np.arange(40)
    base = save(tmp_path / "base", edges, ids)
    edges["weights"][7] += 1
    graph = save(tmp_path / "graph", edges, ids)
    for columns, changed in (((*EDGE_COLUMNS,), [edges["sources"][7]]), (("times",), [])):
        before, after = (RowPrints.of(one, columns) for one in (base, graph))
        assert np.flatnonzero(after.changed_since(before, base.path)).tolist() == changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"weights": [1, 2]}, {"weights": [2, 1]}),
        ({"relations": [0, 0], "times": [1, 1]}, {"relations": [3, 3], "times": [0, 0]}),
    ],
    ids=["order", "column"],
)
def test_the_same_numbers_in_another_order_or_column_differ(tmp_path, before, after):
    graphs = []
    for name, columns in (("base", before), ("graph", after)):
        edges = {"sources": np.array([1, 1]), "targets": np.array([2, 2])}
        edges |= {name: np.array(column, np.int32) for name, column in columns.items()}
        graphs.append(save(tmp_path / name, edges, np.arange(3), relations=4))
    base, graph = (RowPrints.of(one, before) for one in graphs)
    assert np.flatnonzero(graph.changed_since(base, tmp_path / "base")).tolist() == [1]


def test_prints_may_hold_what_is_known_of_neighbours(tmp_path):
    graph = save(tmp_path / "g", edges_of(np.random.default_rng(5), 40, 200), np.arange(40))
    values = np.zeros(40, np.int32)
    before = RowPrints.of(graph, nodes=(values, values))
    values[11] = 7
    after = RowPrints.of(graph, nodes=(np.zeros(40, np.int32), values))
    expected = [node for node, row in enumerate(rows_of(graph)) if 11 in row[0]]
    assert np.flatnonzero(after.changed_since(before, graph.path)).tolist() == expected


def test_prints_of_a_damaged_file_are_refused(tmp_path):
    graph = save(tmp_path / "g", edges_of(np.random.default_rng(6), 9, 20), np.arange(9))
    prints = RowPrints.of(graph)
    prints.save(tmp_path)
    again = RowPrints.load(tmp_path, json.loads(json.dumps(prints.about)))
    assert not prints.changed_since(again, tmp_path).any()
    np.save(tmp_path / "_rows.npy", prints.bits[0])
    with pytest.raises(CorruptFile):
        RowPrints.load(tmp_path, prints.about)
