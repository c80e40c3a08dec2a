"""Rows of ghosts are packed and added as by the naive twin."""

import numpy as np
import pytest

from penstock.kernels.naive import ghost_rows as naive


def some_rows(of, count, seed):
    return np.random.default_rng(seed).permutation(of)[:count].astype(np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 32, 100, 1100])
@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (5, 0), (70_000, 33_333)])
def test_rows_are_taken_and_added(backend, dtype, width, nodes, count):
    module, draw = backend.module("ghost_rows"), np.random.default_rng(width)
    nodes = min(nodes, 1_000_000 // width)
    count = min(count, nodes)
    x, came = (draw.standard_normal((n, width)).astype(dtype) for n in (nodes, count))
    rows, there = some_rows(nodes, count, width), backend.put(x.copy())
    out, expected = backend.put(np.full((count, width), 7, dtype)), np.zeros((count, width), dtype)
    module.take_rows(there, backend.put(rows), out)
    naive.take_rows(x, rows, expected)
    np.testing.assert_array_equal(backend.get(out), expected)
    module.add_rows(there, backend.put(rows), backend.put(came))
    naive.add_rows(x, rows, came)
    np.testing.assert_array_equal(backend.get(there), x)
    if backend.name == "cuda":  # rows that follow each other, too
        module.add_rows(there, slice(nodes - count, nodes), backend.put(came))
        naive.add_rows(x, slice(nodes - count, nodes), came)
        np.testing.assert_array_equal(backend.get(there), x)


@pytest.mark.gpu
def test_rows_that_begin_anywhere():
    import cupy as cp

    from penstock.kernels.cuda import ghost_rows as module

    for first in range(4):  # at another multiple of 4 bytes each
        whole = cp.arange(4 * 50 + first, dtype=np.float32)
        x, rows = whole[first:].reshape(50, 4), cp.asarray(some_rows(50, 20, first))
        out = cp.zeros(20 * 4 + first, np.float32)[first:].reshape(20, 4)
        expected = x.get()[rows.get()]
        module.take_rows(x, rows, out)
        np.testing.assert_array_equal(out.get(), expected)
        module.add_rows(x, rows, out)
        np.testing.assert_array_equal(x.get()[rows.get()], 2 * expected)
    half = np.arange(300, dtype=np.uint16).reshape(100, 3)  # bfloat16, as it travels
    rows, out = some_rows(100, 33, 0), cp.zeros((33, 3), np.uint16)
    module.take_rows(cp.asarray(half), cp.asarray(rows), out)
    np.testing.assert_array_equal(out.get(), half[rows])
