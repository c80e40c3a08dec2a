import numpy as np
import pytest

from penstock.csr import CSR
from penstock.kernels.cpu import halo as cpu
from penstock.kernels.naive import halo as naive


def graph(nodes, edges):
    """Rows short and long, with parallel edges."""
    random = np.random.default_rng(nodes)
    ends = random.integers(0, nodes, (edges, 2))
    ends[: edges // 3, 0] = 0
    return CSR.from_edges(ends[:, 0], ends[:, 1], nodes, relations=np.arange(edges, dtype=np.int32))


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize(("nodes", "edges"), [(1, 0), (3, 40), (300, 1500)])
def test_rows_go_back_to_the_order_of_the_graph(ids, nodes, edges):
    csr = graph(nodes, edges)
    global_ids = np.random.default_rng(0).permutation(nodes).astype(ids)
    local = np.argsort(global_ids).astype(np.int32)[csr.indices]
    rows = np.repeat(np.arange(nodes), csr.degrees())
    of_part = np.lexsort([csr.relations, local, rows])  # as parts have them
    for module in (naive, cpu):
        indices, order = module.global_rows(csr.indptr, local[of_part], global_ids)
        assert indices.dtype == ids
        assert order.dtype == np.int64
        np.testing.assert_array_equal(indices, csr.indices)
        np.testing.assert_array_equal(csr.relations[of_part][order], csr.relations)
