from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.gnn_rules import Activation, Dropout, Epilogue, ScaledCSR
from penstock.kernels.naive import activation
from penstock.kernels.naive import aggregate as naive
from penstock.kernels.streams import Stream

WIDTHS = [1, 2, 3, 8, 9, 32, 47, 100, 130, 300]
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
IDS = pytest.mark.parametrize("index", ["int32", "int64"])
VALUES = ["weights", "left", "right", "diagonal"]


def make_block(rows, columns, *, dtype="float64", index="int32", values=VALUES, seed=0, mean=6):
    """Make random rows, with an empty one, a hub and repeated columns."""
    generator = np.random.default_rng(seed)
    degrees = generator.poisson(mean, rows)
    degrees[0], degrees[rows // 2], degrees[-1] = 0, 5 * columns, 0
    indices = [np.sort(generator.integers(0, columns, degree)) for degree in degrees]
    sizes = {"weights": degrees.sum(), "left": rows, "right": columns, "diagonal": rows}
    given = {name: generator.standard_normal(sizes[name]).astype(dtype) for name in values}
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return ScaledCSR(indptr, np.concatenate(indices).astype(index), columns, **given)


def normal(shape, dtype="float64", seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def matrix(block):
    """Return what a block means, by SciPy."""
    weights = np.ones(block.edges) if block.weights is None else block.weights
    found = scipy.sparse.csr_matrix(
        (weights, block.indices, block.indptr), (block.rows, block.columns)
    )
    if block.diagonal is not None:
        found = found + scipy.sparse.diags_array(block.diagonal, shape=found.shape)
    left = np.ones(block.rows) if block.left is None else block.left
    right = np.ones(block.columns) if block.right is None else block.right
    return scipy.sparse.diags_array(left) @ found @ scipy.sparse.diags_array(right)


def subsets(names):
    return [[n for i, n in enumerate(names) if bits >> i & 1] for bits in range(1 << len(names))]


# -- the truth of the naive twin --------------------------------------------------------------


@pytest.mark.parametrize("values", subsets(VALUES), ids="+".join)
def test_naive_sums_are_products_with_a_sparse_matrix(values):
    block = make_block(20, 30, values=values)
    x, out = normal((30, 7)), np.empty((20, 7))
    naive.gather(block, x, out, 0, 20)
    np.testing.assert_allclose(out, matrix(block) @ x, atol=1e-12)

    transposed = naive.transpose(block)
    np.testing.assert_allclose(matrix(transposed).todense(), matrix(block).T.todense(), atol=1e-12)


# -- backends ---------------------------------------------------------------------------------


@IDS
@pytest.mark.parametrize("values", subsets(VALUES), ids="+".join)
def test_sums_and_transposes_equal_naive(backend, same, index, values):
    block = make_block(40, 60, dtype="float32", index=index, values=values)
    there, ours = backend.put(block), backend.module("aggregate")
    for width in WIDTHS:
        x, truth = normal((60, width), "float32"), np.full((40, width), 5, "float32")
        naive.gather(block, x, truth, 3, 38)
        out = backend.put(np.full((40, width), 5, "float32"))
        ours.gather(there, backend.put(x), out, 3, 38)
        np.testing.assert_allclose(backend.get(out), truth, **TOLERANCE)
    found, truth = ours.transpose(there), naive.transpose(block)
    assert (found.rows, found.columns) == (60, 40)
    same(
        *(tuple(getattr(one, n) for n in ("indptr", "indices", *VALUES)) for one in (found, truth))
    )


@pytest.mark.parametrize("activation_", list(Activation), ids=lambda each: each.name)
def test_sums_are_finished_as_they_are_made(backend, activation_):
    block = make_block(40, 60, dtype="float32", index="int32")
    ids = np.random.default_rng(0).permutation(40).astype(np.int64)
    drop = Dropout(5, Stream.GNN_DROPOUT, 3, 1, 2**31, ids)
    for width in (3, 32, 47):
        epilogue = Epilogue(
            normal(width, "float32"), normal((40, width), "float32"), activation_, drop
        )
        x, truth = normal((60, width), "float32"), np.zeros((40, width), "float32")
        naive.gather(block, x, truth, 0, 40)
        activation.apply_epilogue(truth, truth, epilogue, 0, 40)
        out = backend.put(np.zeros((40, width), "float32"))
        ours = backend.module("aggregate")
        ours.gather(backend.put(block), backend.put(x), out, 0, 40, backend.put(epilogue))
        np.testing.assert_allclose(backend.get(out), truth, **TOLERANCE)


@IDS
@pytest.mark.parametrize("width", [1, 3, 8, 16, 32, 47, 100])
def test_largest_values_equal_naive(backend, same, index, width):
    block = make_block(40, 60, index=index, values=[])
    # Whole numbers, so that there are equals, of which the first counts.
    x = np.rint(2 * normal((60, width))).astype("float32")
    out, arg = np.full((40, width), 5, "float32"), np.full((40, width), 5, index)
    there = backend.put(out.copy()), backend.put(arg.copy())
    naive.gather_max(block, x, out, arg, 2, 40)
    ours = backend.module("aggregate")
    ours.gather_max(backend.put(block), backend.put(x), *there, 2, 40)
    same(there, (out, arg))

    transposed, grad = naive.transpose(block), normal((40, width), "float32")
    truth = np.full((60, width), 5, "float32")
    back = backend.put(truth.copy())
    naive.gather_max_back(transposed, grad, arg, truth, 0, 57)
    ours.gather_max_back(backend.put(transposed), backend.put(grad), there[1], back, 0, 57)
    np.testing.assert_allclose(backend.get(back), truth, **TOLERANCE)


@pytest.mark.parametrize("width", [3, 32])
def test_nan_shows_in_sums_and_largest_values(backend, width):
    block = ScaledCSR(np.array([0, 3, 4]), np.array([0, 1, 2, 0], np.int32), 3)
    x = normal((3, width), "float32")
    x[1] = np.nan
    out = backend.put(np.zeros((2, width), np.float32))
    arg = backend.put(np.zeros((2, width), np.int32))
    ours = backend.module("aggregate")
    for call in (ours.gather, lambda *a: ours.gather_max(*a[:3], arg, *a[3:])):
        call(backend.put(block), backend.put(x), out, 0, 2)
        assert np.isnan(backend.get(out)[0]).all()
        np.testing.assert_array_equal(backend.get(out)[1], x[0])
    assert (backend.get(arg)[0] == 1).all()


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    width=st.integers(1, 70),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_small_blocks_of_any_shape(backend, rows, columns, width, weighted, seed):
    values = ["weights", "right"] if weighted else []
    block = make_block(
        rows, columns, dtype="float32", index="int64", values=values, seed=seed, mean=1
    )
    x, truth = normal((columns, width), "float32", seed), np.empty((rows, width), np.float32)
    naive.gather(block, x, truth, 0, rows)
    out = backend.put(np.empty((rows, width), np.float32))
    ours = backend.module("aggregate")
    ours.gather(backend.put(block), backend.put(x), out, 0, rows)
    np.testing.assert_allclose(backend.get(out), truth, **TOLERANCE)
    transposed = ours.transpose(backend.put(block)), naive.transpose(block)
    for field in fields(ScaledCSR):
        got, expected = (getattr(each, field.name) for each in transposed)
        assert (got is None) == (expected is None)
        np.testing.assert_array_equal(backend.get(got), expected)
