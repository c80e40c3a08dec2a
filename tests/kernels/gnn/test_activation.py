import numpy as np
import pytest

from penstock.kernels.gnn_rules import Activation, Dropout, Epilogue, ScaledCSR
from penstock.kernels.naive import activation as naive
from penstock.kernels.naive.aggregate import transpose
from penstock.kernels.streams import Stream

ROWS, SKIPPED = 23, 2  # the rows computed are SKIPPED .. ROWS - SKIPPED
TOLERANCE = {"rtol": 2e-6, "atol": 2e-6}
ACTIVATIONS = pytest.mark.parametrize("activation", list(Activation), ids=lambda a: a.name)


def drop(ids=None, share=0.4, epoch=3, layer=1):
    ids = np.arange(ROWS, dtype=np.int64) * 7 + 2**33 if ids is None else ids
    return Dropout(2**63 + 11, Stream.GNN_DROPOUT, epoch, layer, int(share * 2**32), ids)


def values(dtype, width, seed=0):
    return np.random.default_rng(seed).standard_normal((ROWS, width)).astype(dtype)


def hows(dtype, width, activation):
    """Every Epilogue with this activation: bias, skip and drop each there or not."""
    bias, skip = values(dtype, width, 1)[0], values(dtype, width, 2)
    return [
        Epilogue(b, s, activation, d)
        for b in (None, bias)
        for s in (None, skip)
        for d in (None, drop())
    ]


@ACTIVATIONS
@pytest.mark.parametrize("width", [1, 3, 8, 32, 47])
def test_finishing_and_the_way_back_equal_naive(backend, activation, width):
    ours = backend.module("activation")
    rows = SKIPPED, ROWS - SKIPPED
    for epilogue in hows("float32", width, activation):
        z, truth = values("float32", width), np.full((ROWS, width), 5, "float32")
        naive.apply_epilogue(z, truth, epilogue, *rows)
        out, there = backend.put(np.full((ROWS, width), 5, "float32")), backend.put(epilogue)
        ours.apply_epilogue(backend.put(z), out, there, *rows)
        np.testing.assert_allclose(backend.get(out), truth, **TOLERANCE)

        grad = values("float32", width, 3)
        mine = backend.put(grad.copy())
        naive.epilogue_backward(grad, truth, epilogue, *rows)
        ours.epilogue_backward(mine, backend.put(truth), there, *rows)
        np.testing.assert_allclose(backend.get(mine), grad, **TOLERANCE)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 32, 47, 300])
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_rows_are_scaled_as_by_the_twin(backend, width, in_place):
    x, factors = values("float32", width), values("float32", 1, 1)[:, 0]
    truth = np.full((ROWS, width), 5, "float32")
    out = backend.put((x if in_place else truth).copy())
    given = out if in_place else backend.put(x)
    naive.scale_rows(x, factors, x if in_place else truth, SKIPPED, ROWS - SKIPPED)
    scale_rows = backend.module("activation").scale_rows
    scale_rows(given, backend.put(factors), out, SKIPPED, 9)
    scale_rows(given, backend.put(factors), out, 9, ROWS - SKIPPED)
    np.testing.assert_array_equal(backend.get(out), x if in_place else truth)


@ACTIVATIONS
def test_extreme_values_stay_numbers_and_nan_stays_nan(backend, activation):
    z = np.array([[-1e30, -200, -90, -0.0, 0.0, 90, 200, 1e30, np.nan]], np.float32)
    out = backend.put(np.empty_like(z))
    backend.module("activation").apply_epilogue(
        backend.put(z), out, Epilogue(activation=activation), 0, 1
    )
    with np.errstate(over="ignore"):
        truth = np.empty_like(z)
        naive.apply_epilogue(z, truth, Epilogue(activation=activation), 0, 1)
    np.testing.assert_allclose(backend.get(out), truth, rtol=2e-6, atol=2e-6)


# -- what is dropped --------------------------------------------------------------------------


def test_factors_equal_naive(backend, same):
    like = np.empty((ROWS, 13), np.float32)
    for which in (None, drop(), drop(share=0.0), drop(share=1 - 2**-32)):
        found = backend.module("activation").factors(backend.put(which), 3, 20, backend.put(like))
        same(found, naive.factors(which, 3, 20, like))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_share_is_dropped_and_the_mean_kept(share):
    like = np.empty((20_000, 10), np.float64)
    which = drop(np.arange(20_000, dtype=np.int64), share)
    factors = naive.factors(which, 0, 20_000, like)
    deviation = np.sqrt(share * (1 - share) / factors.size)
    assert abs((factors == 0).mean() - share) < 4 * deviation
    assert set(np.unique(factors)) == {0, which.scale}
    assert factors.mean() == pytest.approx(1, abs=4 * deviation / (1 - share))
    # Neither features, nor epochs, nor layers, nor neighbouring rows have to do with each other.
    gone = (factors == 0).ravel()
    others = [
        naive.factors(drop(which.ids, share, epoch=4), 0, 20_000, like),
        naive.factors(drop(which.ids, share, layer=2), 0, 20_000, like),
        np.roll(factors, 1, axis=0),
        np.roll(factors, 1, axis=1),
        np.roll(factors, 4, axis=1),
    ]
    for other in others:
        correlation = np.corrcoef(gone, (other == 0).ravel())[0, 1]
        assert abs(correlation) < 4.5 / np.sqrt(gone.size)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_sparse_features_are_dropped_like_dense_ones(backend, index):
    generator = np.random.default_rng(0)
    dense = generator.standard_normal((ROWS, 50)) * (generator.random((ROWS, 50)) < 0.2)
    node, feature = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))])
    rows = ScaledCSR(
        indptr, feature.astype(index), 50, weights=dense[node, feature].astype("float32")
    )
    which = drop()
    kept = dense * naive.factors(which, 0, ROWS, dense)
    for block, truth in [(rows, kept[node, feature]), (transpose(rows), kept.T[dense.T != 0])]:
        out = np.empty(block.edges, "float32")
        naive.drop_values(block, which, out, rows_are_columns=block is not rows)
        np.testing.assert_allclose(out, truth, rtol=1e-6)
        mine = backend.put(np.empty(block.edges, "float32"))
        given = backend.put(block), backend.put(which), mine
        backend.module("activation").drop_values(*given, rows_are_columns=block is not rows)
        np.testing.assert_allclose(backend.get(mine), out, rtol=1e-6)
