"""Kinds of nodes with ids of their own: user 5 is not item 5."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from penstock import walk_array
from penstock.pipelines.etl.nodes import number as number_nodes

BOUGHT = [(5, 5), (5, 7), (10, 5), (9, 5)]
PAIRS = {(f"user:{u}", f"item:{i}") for u, i in BOUGHT}
CONSTANT = {"source_type": "user", "target_type": "item"}
COLUMNS = {"source_type": "column:from", "target_type": "column:to"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", CONSTANT),
        ("csv", COLUMNS),
        ("parquet", CONSTANT | {"target_type": "column:to", "relabel": "random"}),
        ("npz", CONSTANT),
    ],
)
def test_user_5_is_not_item_5(tmp_path, make, monkeypatch, kind, options):
    monkeypatch.setattr(number_nodes, "ID_BYTES", 10**8)  # several ranges of ids
    table = pd.DataFrame(BOUGHT, columns=["user", "item"]).assign(**{"from": "user", "to": "item"})
    named = {"source": "user", "target": "item"}
    if kind == "npz":
        matrix = sp.coo_matrix((np.ones(len(table)), (table.user, table.item)), (11, 8))
        table, named = tmp_path / "m.npz", {}
        sp.save_npz(table, matrix)
    graph, _ = make(table, f"e.{kind}", directed=True, **named, **options)
    graph.validate()
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    assert {(ids[u], ids[v]) for u, v in zip(csr.sources(), csr.indices, strict=True)} == PAIRS
    assert graph.node_column("type").to_pylist() == [name.split(":")[0] for name in ids]
    users, items = (11, 8) if kind == "npz" else (3, 2)
    assert graph.manifest.types == {"item": items, "user": users}
    if options.get("relabel") is None:
        numbers = [(name.split(":")[0], int(name.split(":")[1])) for name in ids]
        assert numbers == sorted(numbers)
    # Without types the report says that 5 is taken for one node.
    if kind != "npz":
        _, report = make(table, f"e.{kind}", **named)
        assert (report.nodes, report.ids_of_both_ends) == (4, 1)


def test_a_node_table_says_types_and_a_walk_starts_at_a_name(tmp_path, make):
    edges = pd.DataFrame(BOUGHT, columns=["src", "dst"])
    nodes = pd.DataFrame({"id": [5, 9, 10, 5], "type": ["user"] * 3 + ["item"], "x": range(4)})
    nodes.to_csv(tmp_path / "n.csv", index=False)
    nodes[:3].to_parquet(tmp_path / "users.parquet")
    options = {"feature_columns": ["x"], "unknown_nodes": "add", **CONSTANT}
    for table, given, of_item in (("n.csv", {}, 3), ("users.parquet", {"node_type": "user"}, 0)):
        graph, _ = make(edges, nodes=tmp_path / table, **options, **given)
        names, features = graph.user_ids().to_pylist(), np.ravel(graph.features()).tolist()
        expected = {"user:5": 0, "user:9": 1, "user:10": 2, "item:5": of_item, "item:7": 0}
        assert dict(zip(names, features, strict=True)) == expected
    paths = walk_array(graph, start=["item:5"], length=2, walks=20)
    assert {names[one] for one in paths.ravel()} == {"item:5", "user:5", "user:9", "user:10"}
