"""What only the GPU's gather has: bfloat16 features, and rows cut into pieces, found once."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.kernels.gnn_rules import Activation, Dropout, Epilogue, ScaledCSR
from penstock.kernels.naive import aggregate as naive

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 60, 3000


@pytest.fixture
def cuda():
    from penstock.kernels.cuda import aggregate

    return aggregate


@pytest.fixture
def narrow():
    from penstock.kernels.cuda.aggregate.bf16 import narrow

    return narrow


@pytest.fixture
def cp():
    import cupy

    return cupy


def a_block(seed=0, ids=np.int32):
    """Two rows of several pieces, one of exactly one, some without edges."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 9, ROWS)
    degrees[[4, 31, 50]] = 1300, 512, 2700
    indices = [np.sort(rng.choice(COLUMNS, degree, replace=False)) for degree in degrees]
    return ScaledCSR(
        np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64),
        np.concatenate(indices).astype(ids),
        COLUMNS,
        left=rng.random(ROWS).astype(np.float32),
        right=rng.random(COLUMNS).astype(np.float32),
        diagonal=rng.random(ROWS).astype(np.float32),
    )


def on_gpu(block, cp):
    names = ("indptr", "indices", "left", "right", "diagonal")
    return replace(block, **{name: cp.asarray(getattr(block, name)) for name in names})


def rounded(x):
    """The nearest float32 with a fraction of seven bits."""
    bits = x.view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return (nearest << np.uint64(16)).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("width", [8, 16, 32, 40, 64, 128, 256, 264])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_bfloat16_is_the_sum_of_rounded_values(cuda, narrow, cp, width, ids):
    rng = np.random.default_rng(width)
    block = a_block(ids=ids)
    x = rng.standard_normal((COLUMNS, width)).astype(np.float32)
    drop = Dropout(3, 71, 1, 0, 2**30, np.arange(ROWS))
    epilogue = Epilogue(x[0], x[1 : ROWS + 1], Activation.RELU, drop)
    truth = np.zeros((ROWS, width))
    double = {name: getattr(block, name).astype(float) for name in ("left", "right", "diagonal")}
    x_there = rounded(x * block.right[:, None])
    exact = replace(block, **{**double, "right": None})
    exact_how = replace(epilogue, bias=x[0].astype(float), skip=x[1 : ROWS + 1].astype(float))
    naive.gather(exact, x_there.astype(float), truth, 0, ROWS, exact_how)

    block, x = on_gpu(block, cp), cp.asarray(x)
    narrowed, out = cp.zeros(x.shape, np.uint16), cp.zeros(truth.shape, np.float32)
    epilogue = replace(
        epilogue, bias=x[0], skip=x[1 : ROWS + 1], drop=replace(drop, ids=cp.arange(ROWS))
    )
    narrow(x, narrowed, 0, 1000, block.right)
    narrow(x, narrowed, 1000, COLUMNS, block.right)
    wide = (cp.asnumpy(narrowed).astype(np.uint32) << np.uint32(16)).view(np.float32)
    np.testing.assert_array_equal(wide, x_there)
    cuda.gather(replace(block, right=None), narrowed, out, 0, ROWS, epilogue)
    np.testing.assert_allclose(cp.asnumpy(out), truth, rtol=1e-4, atol=1e-3)


def test_narrowing_keeps_what_is_not_a_number_and_what_is_infinite(narrow, cp):
    x = cp.asarray(np.array([[np.nan, np.inf, -np.inf, -0.0, 1, -1.5, 3e38, 1e-40]], np.float32))
    out = cp.zeros(x.shape, np.uint16)
    narrow(x, out, 0, 1)
    wide = (cp.asnumpy(out).astype(np.uint32) << np.uint32(16)).view(np.float32)[0]
    assert np.isnan(wide[0])
    np.testing.assert_array_equal(wide[1:6], [np.inf, -np.inf, 0, 1, -1.5])


def test_sums_have_one_order(cuda, cp):
    block = on_gpu(a_block(), cp)
    x = cp.asarray(np.random.default_rng(1).standard_normal((COLUMNS, 32)).astype(np.float32))
    found = [cp.zeros((ROWS, 32), np.float32) for _ in range(3)]
    cuda.gather(block, x, found[0], 0, ROWS)
    cuda.gather(block, x, found[1], 0, ROWS)
    for first, last in ((0, 31), (31, 32), (32, ROWS)):
        cuda.gather(block, x, found[2], first, last)
    for again in found[1:]:
        np.testing.assert_array_equal(cp.asnumpy(again), cp.asnumpy(found[0]))


@pytest.mark.parametrize("ids", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("at_once", [1, 40, 300, 3200, 10_000])
def test_a_transpose_is_made_of_few_edges_at_once(cuda, cp, monkeypatch, ids, weighted, at_once):
    """Columns without edges, first and last, one with 900, and edges listed many times."""
    from penstock.kernels.cuda.aggregate.ranges import ranges_of_columns

    rng = np.random.default_rng(at_once)
    columns = np.sort(rng.choice(np.r_[3:60, 65:90], (400, 8)), axis=1)
    columns[:300, 3:6] = 61
    columns.sort(axis=1)
    weights = rng.random(3200).astype(np.float32) if weighted else None
    block = ScaledCSR(np.arange(401) * 8, columns.ravel().astype(ids), 100, weights)
    monkeypatch.setattr(cuda, "EDGES_AT_ONCE", at_once)
    there = replace(
        block,
        indptr=cp.asarray(block.indptr),
        indices=cp.asarray(block.indices),
        weights=cp.asarray(weights) if weighted else None,
    )
    indptr = cp.asarray(np.arange(101) * 32)
    sizes = [high - low for _, _, low, high in ranges_of_columns(indptr, at_once)]
    assert sum(sizes) == 3200
    assert max(sizes) <= max(at_once, 32)
    found, truth = cuda.transpose(there), naive.transpose(block)
    for name in ("indptr", "indices", "weights")[: 2 + weighted]:
        np.testing.assert_array_equal(cp.asnumpy(getattr(found, name)), getattr(truth, name))
        assert getattr(found, name).dtype == getattr(truth, name).dtype
