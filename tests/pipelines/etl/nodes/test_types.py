"""Kinds of nodes with ids of their own: user 5 is not item 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from penstock import Graph, etl, walk
from penstock.cluster.spec import ClusterSpec
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
def test_user_5_is_not_item_5(
    tmp_path: Path,
    cluster: ClusterSpec,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: dict[str, Any],
) -> None:
    monkeypatch.setattr(number_nodes, "_ID_BYTES", 10**8)  # several ranges of ids
    frame = pd.DataFrame(BOUGHT, columns=["user", "item"]).assign(**{"from": "user", "to": "item"})
    path = tmp_path / f"e.{kind}"
    if kind == "npz":
        matrix = sp.coo_matrix((np.ones(len(frame)), (frame.user, frame.item)), (11, 8))
        sp.save_npz(path, matrix)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    named = {} if kind == "npz" else {"source": "user", "target": "item"}
    etl(path, tmp_path / "g", cluster=cluster, directed=True, **named, **options)
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    assert {(ids[u], ids[v]) for u, v in zip(csr.sources(), csr.indices, strict=True)} == PAIRS
    assert graph.node_column("type").to_pylist() == [name.split(":")[0] for name in ids]
    assert graph.manifest.types == (
        {"item": 8, "user": 11} if kind == "npz" else {"item": 2, "user": 3}
    )
    if options.get("relabel") is None:
        numbers = [(name.split(":")[0], int(name.split(":")[1])) for name in ids]
        assert numbers == sorted(numbers)
    # Without types the report says that 5 is taken for one node.
    if kind != "npz":
        report = etl(path, tmp_path / "merged", cluster=cluster, **named)
        assert (report.nodes, report.ids_of_both_ends) == (4, 1)


def test_a_node_table_says_types_and_a_walk_starts_at_a_name(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    pd.DataFrame(BOUGHT, columns=["src", "dst"]).to_parquet(tmp_path / "e.parquet")
    nodes = pd.DataFrame({"id": [5, 9, 10, 5], "type": ["user"] * 3 + ["item"], "x": range(4)})
    nodes.to_csv(tmp_path / "n.csv", index=False)
    nodes[:3].to_parquet(tmp_path / "users.parquet")
    for table, given, of_item in (("n.csv", {}, 3), ("users.parquet", {"node_type": "user"}, 0)):
        etl(
            tmp_path / "e.parquet",
            tmp_path / "g",
            cluster=cluster,
            overwrite=True,
            nodes=tmp_path / table,
            feature_columns=["x"],
            unknown_nodes="add",
            **CONSTANT,
            **given,
        )
        graph = Graph.open(tmp_path / "g")
        names, features = graph.user_ids().to_pylist(), np.ravel(graph.features()).tolist()
        expected = {"user:5": 0, "user:9": 1, "user:10": 2, "item:5": of_item, "item:7": 0}
        assert dict(zip(names, features, strict=True)) == expected
    walk(tmp_path / "g", tmp_path / "w", start=["item:5"], length=2, walks=20, cluster=cluster)
    (paths,) = pq.read_table(tmp_path / "w").columns[-1:]
    assert {name for path in paths.to_pylist() for name in path} == {
        "item:5",
        "user:5",
        "user:9",
        "user:10",
    }
