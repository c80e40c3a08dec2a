"""Rows are packed and added on the GPU as the naive twin does it."""

import numpy as np
import pytest

from penstock.kernels.naive import ghost_rows as naive

pytestmark = pytest.mark.gpu


@pytest.fixture
def module():
    from penstock.kernels.cuda import ghost_rows

    return ghost_rows


def some_rows(of, count, seed):
    return np.random.default_rng(seed).permutation(of)[:count].astype(np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16"])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 32, 100, 1100])
@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (5, 0), (70_000, 33_333)])
def test_take(module, dtype, width, nodes, count):
    import cupy as cp

    nodes = min(nodes, 4_000_000 // width)
    count = min(count, nodes)
    x = np.random.default_rng(width).integers(0, 60_000, (nodes, width)).astype(dtype)
    rows = some_rows(nodes, count, width)
    out, expected = cp.full((count, width), 7, dtype), np.zeros((count, width), dtype)
    module.take_rows(cp.asarray(x), cp.asarray(rows), out)
    naive.take_rows(x, rows, expected)
    np.testing.assert_array_equal(out.get(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 32, 100, 1100])
@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (5, 0), (70_000, 33_333)])
def test_add(module, dtype, width, nodes, count):
    import cupy as cp

    nodes = min(nodes, 4_000_000 // width)
    count = min(count, nodes)
    draw = np.random.default_rng(width)
    x, came = (draw.standard_normal((n, width)).astype(dtype) for n in (nodes, count))
    rows = some_rows(nodes, count, width)
    on_gpu = cp.asarray(x)
    module.add_rows(on_gpu, cp.asarray(rows), cp.asarray(came))
    naive.add_rows(x, rows, came)
    np.testing.assert_array_equal(on_gpu.get(), x)
    first = nodes - count
    module.add_rows(on_gpu, slice(first, nodes), cp.asarray(came))
    naive.add_rows(x, slice(first, nodes), came)
    np.testing.assert_array_equal(on_gpu.get(), x)


def test_rows_that_begin_anywhere(module):
    import cupy as cp

    for first in range(4):  # at another multiple of 4 bytes each
        whole = cp.arange(4 * 50 + first, dtype=np.float32)
        x, rows = whole[first:].reshape(50, 4), cp.asarray(some_rows(50, 20, first))
        out = cp.zeros(20 * 4 + first, np.float32)[first:].reshape(20, 4)
        expected = x.get()[rows.get()]
        module.take_rows(x, rows, out)
        np.testing.assert_array_equal(out.get(), expected)
        module.add_rows(x, rows, out)
        np.testing.assert_array_equal(x.get()[rows.get()], 2 * expected)
