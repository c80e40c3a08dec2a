"""What a rank opens: rows renumbered so that those without ghosts come first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.errors import GraphError
from penstock.graph import Graph
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import LocalGraph, open_local


def check_rows(graph: Graph, local: LocalGraph, *, weighted: bool = False) -> None:
    csr, ids = graph.csr(), local.ids
    assert local.ids.dtype == np.int64
    assert local.indptr.dtype == np.int64
    assert local.indices.dtype == np.int32
    assert (local.nodes, local.edges) == (graph.num_nodes, graph.num_edges)
    assert len(local.indptr) == local.owned + 1
    assert len(local.ids) == local.columns
    assert len(np.unique(local.ids)) == local.columns
    assert (np.diff(local.ids[: local.interior]) > 0).all()
    assert (np.diff(local.ids[local.interior : local.owned]) > 0).all()
    assert (local.weights is not None) == weighted
    for row in range(local.owned):
        span = slice(local.indptr[row], local.indptr[row + 1])
        columns = local.indices[span]
        assert (np.diff(columns) > 0).all()
        assert (columns >= local.owned).any() == (row >= local.interior)
        node = ids[row]
        there = slice(csr.indptr[node], csr.indptr[node + 1])
        order = np.argsort(ids[columns])
        np.testing.assert_array_equal(ids[columns][order], csr.indices[there])
        if weighted:
            assert local.weights is not None
            assert csr.weights is not None
            assert local.weights.dtype == np.float32
            np.testing.assert_array_equal(local.weights[span][order], csr.weights[there])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("k", "directed"), [(1, False), (1, True), (2, False), (4, True)])
def test_rows_are_those_of_the_graph(
    make_graph: Any, opened: Any, k: int, directed: bool, weighted: bool
) -> None:
    graph = make_graph(
        80, 130, directed=directed, weights=True, features="dense", labels=4, shard_edges=50
    )
    locals_ = opened(graph, k, weighted=weighted)
    for rank, local in enumerate(locals_):
        assert (local.rank, local.size) == (rank, k)
        check_rows(graph, local, weighted=weighted)
        assert local.symmetric == (k == 1 and not directed)
        np.testing.assert_array_equal(local.features, graph.features()[local.ids[: local.owned]])
        np.testing.assert_array_equal(local.labels, graph.labels()[local.ids[: local.owned]])
        assert local.outputs == 4
    owned = np.concatenate([local.ids[: local.owned] for local in locals_])
    np.testing.assert_array_equal(np.sort(owned), np.arange(80))
    if k == 1:
        np.testing.assert_array_equal(owned, np.arange(80))
    else:
        assert any(0 < local.interior < local.owned for local in locals_)


def test_a_partition_of_another_graph(ring: Any, partitioned: Any) -> None:
    partition = partitioned(ring(), 1)
    other = ring("other", ids=list("abcdef"))
    with (
        pytest.raises(GraphError),
        open_local(SingleRank(), other.path, partition, weighted=False),
    ):
        pass
