import numpy as np
import pytest
import scipy.special

from penstock.kernels.gnn_rules import Graded
from penstock.kernels.naive import loss as naive

ROWS = 41
TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}
GRADIENTS = pytest.mark.parametrize("wanted", ["none", "apart", "in place"])


def normal(shape, dtype="float64", seed=1):
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def roles_of(rows=ROWS):
    return np.random.default_rng(0).integers(-1, 3, rows).astype(np.int8)


def class_numbers(width):
    return np.random.default_rng(1).integers(-1, width, ROWS).astype(np.int32)


def class_lists(width, share=0.3):
    truth = np.random.default_rng(2).random((ROWS, width)) < share
    indptr = np.concatenate([[0], np.cumsum(truth.sum(axis=1))])
    return indptr, np.nonzero(truth)[1].astype(np.int32), truth


def compare(backend, name, logits, truth, wanted, first=2, last=ROWS - 1):
    """Run a loss of the backend and its naive twin on the same rows, and compare all they write."""
    found = []
    for module, put in ((naive, np.copy), (backend.module("loss"), backend.put)):
        value, sums = put(logits.copy()), put(np.ones((3, 4)))
        apart = put(np.full_like(logits, 7))
        grad = {"none": None, "apart": apart, "in place": value}[wanted]
        rows, given = Graded(value, put(roles_of()), 0.1, grad, sums), map(put, truth)
        getattr(module, name)(rows, *given, first, last)
        found.append([backend.get(each) for each in (sums, apart, value)])
    for ours, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, expected, **TOLERANCE)


@GRADIENTS
@pytest.mark.parametrize("width", [1, 2, 7, 17, 47, 60, 107, 256, 257, 600])
def test_cross_entropy_equals_naive(backend, wanted, width):
    truth = (class_numbers(width),)
    compare(backend, "cross_entropy", normal((ROWS, width), "float32"), truth, wanted)
    # Equals: the first of the largest is the prediction.
    equals = np.rint(normal((ROWS, width))).astype("float32")
    compare(backend, "cross_entropy", equals, truth, wanted)


@pytest.mark.parametrize("width", [5, 47, 300])
def test_the_first_of_the_largest_is_right_and_nan_is_the_largest(backend, width):
    logits = np.rint(normal((500, width)) / 3).astype("float32")
    logits[::3, width // 2] = np.nan
    logits[::5, width - 1] = np.nan
    logits[::7] = np.nan
    logits[1::7] = -np.inf
    logits[2::7, :2] = np.inf
    labels = np.argmax(logits, axis=1).astype(np.int64)
    labels[::2] = np.random.default_rng(0).integers(0, width, 250)
    splits = np.zeros(500, np.int8)
    right = (np.argmax(logits, axis=1) == labels).sum()
    assert 250 <= right < 500
    sums, grad = backend.put(np.zeros((3, 4))), backend.put(np.zeros_like(logits))
    rows = Graded(backend.put(logits), backend.put(splits), 1, grad, sums)
    backend.module("loss").cross_entropy(rows, backend.put(labels), 0, 500)
    assert backend.get(sums)[0, 1:].tolist() == [500, right, 500]
    strange = np.isnan(logits).any(axis=1) | np.isinf(logits[:, 0])
    np.testing.assert_array_equal(
        np.isnan(backend.get(grad)), np.broadcast_to(strange[:, None], logits.shape)
    )


@GRADIENTS
@pytest.mark.parametrize("width", [1, 3, 121, 600])
def test_binary_cross_entropy_equals_naive(backend, wanted, width):
    logits = normal((ROWS, width), "float32")
    truth = class_lists(width)[:2]
    compare(backend, "binary_cross_entropy", logits, truth, wanted)


@GRADIENTS
def test_squared_error_equals_naive(backend, wanted):
    truth = normal(ROWS, "float32", seed=2)
    truth[::5] = np.nan
    compare(backend, "squared_error", normal((ROWS, 1), "float32"), (truth,), wanted)


def test_naive_cross_entropy_is_the_softmax_of_scipy():
    logits, labels, splits, sums = normal((ROWS, 9)), class_numbers(9), roles_of(), np.zeros((3, 4))
    naive.cross_entropy(Graded(logits, splits, 1, None, sums), labels, 0, ROWS)
    for split in range(3):
        chosen = (splits == split) & (labels >= 0)
        terms = -scipy.special.log_softmax(logits, axis=1)[np.arange(ROWS), labels][chosen]
        right = (logits.argmax(axis=1) == labels)[chosen].sum()
        truth = [terms.sum(), chosen.sum(), right, chosen.sum()]
        np.testing.assert_allclose(sums[split], truth)


def test_naive_binary_cross_entropy_is_the_logarithm_of_expit():
    logits, (indptr, classes, truth) = normal((ROWS, 9)), class_lists(9)
    splits, sums = roles_of(), np.zeros((3, 4))
    rows = Graded(logits, splits, 1, None, sums)
    naive.binary_cross_entropy(rows, indptr, classes, 0, ROWS)
    signed = np.where(truth, logits, -logits)
    for split in range(3):
        chosen = splits == split
        told, true = logits[chosen] > 0, truth[chosen]
        loss = -scipy.special.log_expit(signed[chosen]).sum()
        both = (told & true).sum()
        counts = [loss, true.size, 2 * both, told.sum() + true.sum()]
        np.testing.assert_allclose(sums[split], counts)


@pytest.mark.parametrize("name", ["cross_entropy", "binary_cross_entropy", "squared_error"])
def test_naive_gradients_are_those_of_finite_differences(name):
    width = 1 if name == "squared_error" else 6
    logits, splits = normal((ROWS, width)), roles_of()
    truth = {
        "cross_entropy": (class_numbers(width),),
        "binary_cross_entropy": class_lists(width)[:2],
        "squared_error": (normal(ROWS, seed=2),),
    }[name]

    def loss(value, grad=None):
        sums = np.zeros((3, 4))
        getattr(naive, name)(Graded(value, splits, 0.25, grad, sums), *truth, 0, ROWS)
        return sums[0, 0] * 0.25

    grad = np.empty_like(logits)
    loss(logits, grad)
    for at in np.ndindex(*logits.shape):
        moved = np.zeros_like(logits)
        moved[at] = 1e-6
        slope = (loss(logits + moved) - loss(logits - moved)) / 2e-6
        assert slope == pytest.approx(grad[at], abs=1e-7)
    assert (grad[splits != 0] == 0).all()
    assert (grad[splits == 0] != 0).any()


def test_logits_may_be_large(backend):
    logits = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [80, 90, 100]], "float32")
    ours, splits = backend.module("loss"), backend.put(np.zeros(3, np.int8))
    sums, grad = backend.put(np.zeros((3, 4))), backend.put(np.empty_like(logits))
    labels = backend.put(np.array([1, 0, 2], np.int32))
    ours.cross_entropy(Graded(backend.put(logits), splits, 1, grad, sums), labels, 0, 3)
    assert backend.get(sums)[0, 0] == pytest.approx(20_000 + np.log(3) + np.log1p(np.exp(-10)))
    np.testing.assert_allclose(backend.get(grad)[0], [1, -1, 0], atol=1e-6)

    sums = backend.put(np.zeros((3, 4)))
    lists = backend.put(np.array([0, 1, 1, 1])), backend.put(np.array([1], np.int32))
    rows = Graded(backend.put(logits), splits, 1, grad, sums)
    ours.binary_cross_entropy(rows, *lists, 0, 3)
    assert backend.get(sums)[0, 0] == pytest.approx(20_000 + np.log(2) + 270)
    assert np.isfinite(backend.get(grad)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 3, 8])
@pytest.mark.parametrize("width", [9, 40])
def test_a_loss_of_values_that_are_not_finite_is_not_finite(backend, bad, place, width):
    ours, splits = backend.module("loss"), backend.put(np.zeros(2, np.int8))
    logits = normal((2, width), "float32")
    logits[1, place] = bad
    sums, grad = backend.put(np.zeros((3, 4))), backend.put(np.empty_like(logits))
    labels = backend.put(np.array([1, 2], np.int32))
    ours.cross_entropy(Graded(backend.put(logits), splits, 1, grad, sums), labels, 0, 2)
    assert np.isnan(backend.get(sums)[0, 0])

    sums = backend.put(np.zeros((3, 4)))
    lists = backend.put(np.array([0, 0, 0])), backend.put(np.empty(0, np.int32))
    rows = Graded(backend.put(logits), splits, 1, grad, sums)
    ours.binary_cross_entropy(rows, *lists, 0, 2)
    assert not np.isfinite(backend.get(sums)[0, 0])

    sums = backend.put(np.zeros((3, 4)))
    column, truth = backend.put(logits[1:, place : place + 1].copy()), backend.put(logits[1:, 1])
    ours.squared_error(Graded(column, splits, 1, grad, sums), truth, 0, 1)
    assert not np.isfinite(backend.get(sums)[0, 0])
