"""Mapped arrays are read into a GPU's memory by several threads."""

import numpy as np
import pytest

from penstock.workers.resources import upload


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_is_uploaded_is_what_was_mapped(tmp_path, dtype):
    import cupy as cp

    random = np.random.default_rng(0)
    into = cp.full(11_000_003, -1, dtype)
    first, pairs = 0, []
    for number, count in enumerate((5_000_000, 0, 1, 6_000_000)):
        np.save(tmp_path / f"{number}.npy", random.integers(0, 2**31, count).astype(dtype))
        mapped = np.load(tmp_path / f"{number}.npy", mmap_mode="r" if count else None)
        pairs.append((mapped, into[first : first + count]))
        first += count
    upload.upload(iter(pairs))
    found = into.get()
    np.testing.assert_array_equal(found[:first], np.concatenate([host for host, _ in pairs]))
    assert (found[first:] == -1).all()


@pytest.mark.gpu
def test_rows_on_the_gpu_are_those_of_the_graph(tmp_path):
    from penstock import CSR, Graph
    from penstock.kernels.walk_rules import WalkRules
    from penstock.workers.walk.held import columns_of, columns_on_gpu
    from penstock.workers.walk.rows import WalkGraphSpec

    ends = np.random.default_rng(0).integers(0, 500, (2, 20_000))
    with Graph.create(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(*ends, 500), shard_edges=3000)
        writer.nodes()
    graph = Graph.open(tmp_path / "g")
    assert graph.num_shards > 3
    spec = WalkGraphSpec(WalkRules(length=5), degrees=True)
    found, expected = columns_on_gpu(graph, spec), columns_of(graph, spec)
    assert set(found) == set(expected)
    for name, column in expected.items():
        mine = found[name].get() if name == "indices" else found[name]
        assert mine.dtype == column.dtype
        np.testing.assert_array_equal(mine, column)
