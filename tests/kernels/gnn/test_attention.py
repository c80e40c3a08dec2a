import numpy as np
import pytest

from penstock.kernels.gnn_rules import Dropout, Heads, ScaledCSR
from penstock.kernels.naive import attention as naive
from penstock.kernels.naive.aggregate import transpose
from penstock.kernels.streams import Stream

ROWS, COLUMNS = 24, 31
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
SHAPES = pytest.mark.parametrize(
    ("heads", "width"), [(1, 1), (1, 47), (2, 3), (3, 5), (4, 8), (5, 9), (8, 8), (8, 16), (1, 40)]
)
DROPPED = pytest.mark.parametrize("dropped", [False, True], ids=["whole", "dropped"])


def make_block(index="int32", *, columns=COLUMNS, seed=0):
    """Make random rows: an empty one, hubs, repeated columns, and some that list themselves."""
    generator = np.random.default_rng(seed)
    degrees = generator.poisson(4, ROWS)
    degrees[0], degrees[3], degrees[5], degrees[-1] = 0, 7 * columns, 80, 0
    indices = [np.sort(generator.integers(0, columns, degree)) for degree in degrees]
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return ScaledCSR(indptr, np.concatenate(indices).astype(index), columns)


def normal(shape, dtype="float64", seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def make_heads(count, dtype="float64", *, dropped=False, columns=COLUMNS):
    ids = np.random.default_rng(0).permutation(columns).astype(np.int64) + 5
    drop = Dropout(2**63 + 1, Stream.GNN_ATTENTION, 3, 1, 2**31, ids, nodes=2**33)
    scores = 2 * normal((2, columns, count), dtype, 7)
    empty = np.zeros((2, ROWS, count), dtype)
    return Heads(*scores, *empty, slope=0.2, drop=drop if dropped else None)


def close(backend, got, expected):
    np.testing.assert_allclose(backend.get(got), expected, **TOLERANCE)


@SHAPES
@DROPPED
def test_sums_and_the_way_back_equal_naive(backend, heads, width, dropped):
    block, transposed = make_block(), transpose(make_block())
    truth = make_heads(heads, "float32", dropped=dropped)
    z, grad = (
        normal((COLUMNS, heads * width), "float32"),
        normal((ROWS, heads * width), "float32", 2),
    )
    mine, mine_block, mine_transposed = (backend.put(each) for each in (truth, block, transposed))
    mine_z, mine_grad = backend.put(z), backend.put(grad)
    ours = backend.module("attention")

    out = np.zeros((ROWS, heads * width), "float32")
    naive.attend(block, z, truth, out, 0, ROWS)
    mine_out = backend.put(np.zeros_like(out))
    ours.attend(mine_block, mine_z, mine, mine_out, 0, 10)
    ours.attend(mine_block, mine_z, mine, mine_out, 10, ROWS)
    close(backend, mine.peak, truth.peak)
    close(backend, mine.total, truth.total)
    close(backend, mine_out, out)

    mine = backend.put(truth)  # so that errors are those of one function
    dot, dleft = np.full((2, ROWS, heads), 7, "float32")
    mine_dot, mine_dleft = backend.put(dot.copy()), backend.put(dleft.copy())
    naive.attend_back_rows(block, z, truth, out, grad, dot, dleft, 1, ROWS)
    ours.attend_back_rows(
        mine_block, mine_z, mine, backend.put(out), mine_grad, mine_dot, mine_dleft, 1, ROWS
    )
    close(backend, mine_dot, dot)
    close(backend, mine_dleft, dleft)

    dz, dright = np.full_like(z, 7), np.full((COLUMNS, heads), 7, "float32")
    mine_dz, mine_dright = backend.put(dz.copy()), backend.put(dright.copy())
    naive.attend_back_columns(transposed, z, truth, grad, dot, dz, dright, 1, COLUMNS)
    ours.attend_back_columns(
        mine_transposed, mine_z, mine, mine_grad, backend.put(dot), mine_dz, mine_dright, 1, COLUMNS
    )
    close(backend, mine_dz, dz)
    close(backend, mine_dright, dright)


@SHAPES
def test_scores_and_the_way_back_equal_naive(backend, heads, width):
    z, vectors = normal((COLUMNS, heads * width), "float32"), normal((heads, width), "float32", 2)
    out = np.empty((COLUMNS, heads), "float32")
    naive.scores(z, vectors, out)
    mine = backend.put(np.empty_like(out))
    ours = backend.module("attention")
    ours.scores(backend.put(z), backend.put(vectors), mine)
    close(backend, mine, out)

    dz, dvectors = normal(z.shape, "float32", 3), normal(vectors.shape, "float32", 4)
    mine_dz, mine_dvectors = backend.put(dz.copy()), backend.put(dvectors.copy())
    naive.scores_back(out, z, vectors, dz, dvectors)
    given = backend.put(out), backend.put(z), backend.put(vectors)
    ours.scores_back(*given, mine_dz, mine_dvectors)
    close(backend, mine_dz, dz)
    close(backend, mine_dvectors, dvectors)


def test_scores_may_be_far_apart(backend):
    # The highest comes last, after a chunk of edges and more, so that sums are scaled on the way.
    indptr, indices = np.array([0, 200, 200]), np.arange(200, dtype=np.int32)
    block = ScaledCSR(indptr, indices, 200)
    scores = np.linspace(-3000, 3000, 200).astype("float32")[:, None]
    heads = Heads(np.zeros((200, 1), "float32"), scores, *np.zeros((2, 2, 1), "float32"), slope=0.2)
    z, out = normal((200, 8), "float32"), np.zeros((2, 8), "float32")
    mine, mine_out = backend.put(heads), backend.put(out)
    backend.module("attention").attend(backend.put(block), backend.put(z), mine, mine_out, 0, 2)
    naive.attend(block, z, heads, out, 0, 2)
    close(backend, mine_out, out)
    np.testing.assert_allclose(out, z[[199, 1]], rtol=1e-5)
    assert backend.get(mine.peak)[0, 0] == 3000


def test_nan_shows(backend):
    block, heads = make_block(), make_heads(2, "float32")
    heads.right[4, 1] = np.nan
    z, out = normal((COLUMNS, 6), "float32"), backend.put(np.zeros((ROWS, 6), np.float32))
    ours = backend.module("attention")
    ours.attend(backend.put(block), backend.put(z), backend.put(heads), out, 0, ROWS)
    got = backend.get(out)
    assert not np.isnan(got[:, :3]).any()
    readers = [
        row == 4 or 4 in block.indices[block.indptr[row] : block.indptr[row + 1]]
        for row in range(ROWS)
    ]
    np.testing.assert_array_equal(np.isnan(got[:, 3:]).all(axis=1), readers)
    np.testing.assert_array_equal(np.isnan(got[:, 3:]).any(axis=1), readers)


# -- the truth of the naive twin --------------------------------------------------------------


def test_the_share_of_weights_is_dropped():
    """Every node reads every node, in six heads, whose rows of z have a one for each column."""
    drop = Dropout(1, Stream.GNN_ATTENTION, 0, 0, int(0.3 * 2**32), np.arange(200), nodes=200)
    heads = Heads(*np.zeros((2, 200, 6)), *np.zeros((2, 200, 6)), drop=drop)
    block = ScaledCSR(np.arange(201) * 200, np.tile(np.arange(200), 200), 200)
    z, out = np.tile(np.eye(200), 6), np.empty((200, 1200))
    naive.attend(block, z, heads, out, 0, 200)
    weights = out.reshape(200, 6, 200).transpose(0, 2, 1)
    gone = weights == 0
    np.testing.assert_allclose(weights[~gone], 1 / 200 * drop.scale)
    deviation = np.sqrt(0.3 * 0.7 / gone.size)
    assert abs(gone.mean() - 0.3) < 4 * deviation
    # Heads, and the two directions of an edge, have nothing to do with each other.
    for other in (np.roll(gone, 1, axis=2), np.roll(gone, 4, axis=2), gone.transpose(1, 0, 2)):
        correlation = np.corrcoef(gone.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(gone.size)
