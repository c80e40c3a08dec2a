"""Products of matrices on the GPU, against the naive twin and in one order."""

import numpy as np
import pytest

from penstock.kernels.naive import product as naive

pytestmark = pytest.mark.gpu

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
TOLERANCE = {"float32": {"rtol": 1e-4, "atol": 1e-4}, "float64": {"rtol": 1e-12, "atol": 1e-12}}
SHAPES = [(200, 32, 47), (1, 5, 7), (64, 1, 9), (33, 100, 1), (1, 1, 1), (1, 64, 1), (300, 1, 1)]


@pytest.fixture
def product():
    from penstock.kernels.cuda.product import product

    return product


@pytest.fixture
def product_of_columns():
    from penstock.kernels.cuda.product import product_of_columns

    return product_of_columns


@pytest.fixture
def cp():
    import cupy

    return cupy


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def views(cp, matrix):
    """The same matrix on the GPU as it may lie there, name by name."""
    rows, columns = matrix.shape
    wide = cp.zeros((rows + 5, columns + 6), matrix.dtype)
    wide[3 : rows + 3, 2 : columns + 2] = cp.asarray(matrix)
    tall = cp.zeros((columns + 4, rows + 3), matrix.dtype)
    tall[1 : columns + 1, 2 : rows + 2] = cp.asarray(matrix.T.copy())
    return {
        "whole": cp.asarray(matrix),
        "rows apart": wide[3 : rows + 3, 2 : columns + 2],
        "transposed": cp.asarray(matrix.T.copy()).T,
        "transposed, columns apart": tall[1 : columns + 1, 2 : rows + 2].T,
    }


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_products_equal_naive(product, cp, dtype, shape):
    rows, inner, columns = shape
    a, b = normal((rows, inner), dtype), normal((inner, columns), dtype, 1)
    truth = np.empty((rows, columns), dtype)
    naive.product(a, b, truth)
    for left in views(cp, a).values():
        for right in views(cp, b).values():
            wide = cp.full((rows + 2, columns + 3), 5, dtype)
            out = wide[1 : rows + 1, 1 : columns + 1]
            product(left, right, out)
            np.testing.assert_allclose(cp.asnumpy(out), truth, **TOLERANCE[dtype])
            wide[1 : rows + 1, 1 : columns + 1] = 5
            assert (cp.asnumpy(wide) == 5).all()


def test_without_inner_values_the_product_is_0(product, cp):
    out = cp.full((3, 4), 5, np.float32)
    product(cp.zeros((3, 0), np.float32), cp.zeros((0, 4), np.float32), out)
    assert (cp.asnumpy(out) == 0).all()
    product(cp.zeros((0, 2), np.float32), cp.zeros((2, 4), np.float32), out[:0])
    product(cp.zeros((3, 2), np.float32), cp.zeros((2, 0), np.float32), out[:, :0])


def test_rounding_before_multiplying_is_asked_for(product, cp):
    a, b = normal((128, 64), "float32"), normal((64, 32), "float32", 1)
    out = cp.zeros((128, 32), np.float32)
    product(cp.asarray(a), cp.asarray(b), out, tf32=True)
    np.testing.assert_allclose(cp.asnumpy(out), a @ b, rtol=0.05, atol=0.05)


# Rows that are not a multiple of what a block takes; widths that are not those of a tile.
COLUMNS = [
    *((4096, 1, 1), (4999, 100, 32), (4099, 32, 47), (4111, 128, 32), (4096, 602, 32)),
    *((4097, 37, 5), (4100, 64, 40), (5001, 104, 16), (4105, 65, 49), (4098, 128, 14)),
    *((7, 3, 4), (1, 1, 1), (4099, 3, 300)),
]


def compare_columns(product_of_columns, cp, a, b, truth, **options):
    """Multiply matrices of the GPU twice, into rows that lie apart; compare with the truth."""
    found = []
    for _ in range(2):
        wide = cp.full((truth.shape[0] + 2, truth.shape[1] + 3), 5, a.dtype)
        out = wide[1:-1, 1:-2]
        product_of_columns(a, b, out, **options)
        found.append(cp.asnumpy(out))
        wide[1:-1, 1:-2] = 5
        assert (cp.asnumpy(wide) == 5).all()
    np.testing.assert_array_equal(*found)
    apart = np.linalg.norm(found[0] - truth)
    assert apart <= {"float32": 1e-5, "float64": 1e-13}[str(a.dtype)] * np.linalg.norm(truth)


@pytest.mark.parametrize("shape", COLUMNS)
def test_products_of_columns_equal_naive_and_are_the_same_in_every_run(
    product_of_columns, cp, shape
):
    rows, down, along = shape
    a, b = normal((rows, down), "float32"), normal((rows, along), "float32", 1)
    truth = np.empty((down, along))
    naive.product_of_columns(a.astype("float64"), b.astype("float64"), truth)
    compare_columns(product_of_columns, cp, cp.asarray(a), cp.asarray(b), truth)


@pytest.mark.parametrize("lying", ["whole", "rows apart", "transposed"])
def test_columns_of_matrices_that_lie_apart(product_of_columns, cp, lying):
    a, b = normal((4500, 40), "float32"), normal((4500, 24), "float32", 1)
    left, right = views(cp, a)[lying], views(cp, b)[lying]
    truth = a.astype("float64").T @ b
    compare_columns(product_of_columns, cp, left, right, truth)
    # Some rows, and columns of which each fourth is the first of 16 bytes.
    truth = a[3:4401, 4:31].astype("float64").T @ b[3:4401, 8:19]
    compare_columns(product_of_columns, cp, left[3:4401, 4:31], right[3:4401, 8:19], truth)


def test_columns_of_no_rows_and_of_other_numbers(product_of_columns, cp):
    out = cp.full((3, 4), 5, np.float32)
    product_of_columns(cp.zeros((0, 3), np.float32), cp.zeros((0, 4), np.float32), out)
    assert (cp.asnumpy(out) == 0).all()
    a, b = normal((4200, 9), "float64"), normal((4200, 5), "float64", 1)
    compare_columns(product_of_columns, cp, cp.asarray(a), cp.asarray(b), a.T @ b)
    a, b = a.astype("float32"), b.astype("float32")
    truth = a.astype("float64").T @ b
    compare_columns(product_of_columns, cp, cp.asarray(a), cp.asarray(b), truth, tf32=True)


def test_values_that_are_not_finite_stay_in_their_row_and_column(product_of_columns, cp):
    a, b = normal((4200, 9), "float32"), normal((4200, 5), "float32", 1)
    a[4199, 8], b[17, 2] = np.nan, np.inf
    out = cp.zeros((9, 5), np.float32)
    product_of_columns(cp.asarray(a), cp.asarray(b), out)
    expected = np.ones((9, 5), bool)
    expected[8], expected[:, 2] = False, False
    np.testing.assert_array_equal(np.isfinite(cp.asnumpy(out)), expected)
