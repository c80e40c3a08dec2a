"""Graphs for training, whole and in parts."""

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import write_graph

from penstock import partition_graph
from penstock.csr import CSR
from penstock.partition.part import partition_path
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.plan.facts import Facts


@pytest.fixture
def partitioned():
    """Partition a graph at random."""

    def make(graph, k):
        partition_graph(graph, k=k, method="random", quiet=True)
        return partition_path(graph, k)

    return make


@pytest.fixture
def ring(tmp_path):
    """Write a ring of six nodes, n0 to n5; what is named replaces its labels, splits, features."""

    def make(name="g", **columns):
        nodes = np.arange(6)
        both = np.concatenate([nodes, (nodes + 1) % 6]), np.concatenate([(nodes + 1) % 6, nodes])
        made = {
            "labels": "class",
            "classes": ("a", "b"),
            "split": np.array([0, 1, 2, 0, 1, 2], np.int8),
            "label": np.array([0, 1, 0, 1, 0, 1], np.int32),
            "features": nodes.astype(np.float32)[:, None] * [1, 2],
        } | columns
        made["nodes"] = {name: made.pop(name) for name in ("label", "split")}
        ids = [f"n{i}" for i in range(6)]
        return write_graph(tmp_path / name, CSR.from_edges(*both, 6), ids, directed=False, **made)

    return make


@pytest.fixture(scope="session")
def one_rank():
    """Return a graph as one rank has it in memory, and its facts."""

    def make(csr, features, outputs, *, symmetric, weighted=False):
        nodes, rng = csr.rows, np.random.default_rng(0)
        both = {"nodes": nodes, "columns": nodes, "edges": csr.edges}
        both |= {"symmetric": symmetric, "features": features}
        of_rank = {"owned": nodes, "interior": nodes, "label_kind": "class"}
        local = LocalGraph(
            **both | of_rank,
            ids=np.arange(nodes, dtype=np.int64),
            indptr=csr.indptr,
            indices=csr.indices,
            weights=csr.weights if weighted else None,
            labels=rng.integers(0, outputs, nodes).astype(np.int32),
            splits=np.array([0] * (nodes - 3) + [1, 2, -1], np.int8),
        )
        nonzeros = features.nnz if sp.issparse(features) else int(np.count_nonzero(features))
        both |= {
            "features": features.shape[1],
            "nonzeros": nonzeros,
            "rows": nodes,
            "ranks": 1,
            "outputs": outputs,
        }
        return local, Facts(**both, labels="class", weighted=weighted, on_gpu=False)

    return make
