"""Initial vectors: the same on the CPU and on a GPU."""

import numpy as np
import pytest

from penstock.workers.embed import initial


@pytest.mark.gpu
def test_a_gpu_draws_the_vectors_of_cores(monkeypatch):
    import cupy as cp

    nodes = np.random.default_rng(0).permutation(5000)[:3000]
    on_cores = np.full((3001, 100), np.nan, np.float32)
    initial.fill_nodes(7, nodes, on_cores, 0.3)
    monkeypatch.setattr(initial, "_DEVICE_BYTES", 1 << 18)  # several pieces
    on_device = cp.full((3001, 100), cp.nan, cp.float32)
    initial.fill_nodes(7, nodes, on_device, 0.3)
    np.testing.assert_array_equal(on_device.get(), on_cores)
    assert not on_cores[3000].any()
