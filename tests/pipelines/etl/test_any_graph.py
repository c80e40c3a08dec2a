"""Any small graph that hypothesis thinks of comes out as SciPy has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Graph, etl
from penstock.cluster.spec import ClusterSpec

INTEGERS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 9)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4
)
EDGES = st.one_of(
    *(st.lists(st.tuples(ids, ids), min_size=1, max_size=40) for ids in (SMALL, INTEGERS, TEXT))
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edges=EDGES, directed=st.booleans(), loops=st.booleans(), groups=st.integers(1, 40))
def test_rows_are_scipys(
    tmp_path: Path,
    cluster: ClusterSpec,
    edges: list[tuple[Any, Any]],
    directed: bool,
    loops: bool,
    groups: int,
) -> None:
    table = pd.DataFrame(edges, columns=["src", "dst"])
    table["weight"] = np.arange(1, len(table) + 1, dtype=np.float32)
    table.to_parquet(tmp_path / "edges.parquet", row_group_size=groups)
    etl(
        tmp_path / "edges.parquet",
        tmp_path / "g",
        cluster=cluster,
        directed=directed,
        self_loops="keep" if loops else "drop",
        overwrite=True,
    )
    ids = sorted({end for edge in edges for end in edge})
    place = {name: i for i, name in enumerate(ids)}
    matrix = np.zeros((len(ids), len(ids)))
    for weight, (source, target) in enumerate(edges, 1):
        u, v = place[source], place[target]
        if u == v and not loops:
            continue
        matrix[u, v] += weight
        if not directed and u != v:
            matrix[v, u] += weight
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    csr = graph.csr()
    got = sp.csr_matrix((csr.weights, csr.indices, csr.indptr), shape=matrix.shape)
    assert got.has_canonical_format
    np.testing.assert_array_equal(got.toarray(), matrix)
    assert graph.user_ids().to_pylist() == ids
