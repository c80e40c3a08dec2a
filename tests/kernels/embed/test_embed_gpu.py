"""Training and evaluation of embeddings on a GPU, compared with the naive twin.

Products, and L2 distances made of them, are computed of halves with a scale a row, of which 11 bits
count; other distances in float32.
"""

from dataclasses import replace

import numpy as np
import pytest

from penstock.kernels.embed_rules import Batch, EmbedRules, Loss, Model, Optimizer, Side, Table
from penstock.kernels.naive import embed as naive

pytestmark = pytest.mark.gpu

MODELS = pytest.mark.parametrize("model", list(Model), ids=lambda model: model.name)
LOSSES = pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.name)
DISTANCES = pytest.mark.parametrize(
    "model", [Model.TRANSE_L1, Model.TRANSE_L2, Model.ROTATE], ids=lambda model: model.name
)
TAIL, HEAD = Side.TAIL, Side.HEAD
_LONG = 2.0**40


@pytest.fixture
def cuda():
    from penstock.kernels.cuda import embed

    return embed


def put(found):
    """Copy the arrays of a table or batch to the GPU."""
    import cupy as cp

    if found is None:
        return None
    copied = {
        name: cp.asarray(value) if isinstance(value, np.ndarray) else value
        for name, value in vars(found).items()
    }
    return type(found)(**copied)


def tables_of(rules, nodes, relations, seed=0):
    """Vectors whose scores are about 1 to 200, of wide rows those of distances about 10.

    Values of wide rows have few bits: their sums and differences are not rounded, and so have the
    sign that float64's have, which is the slope of TRANSE_L1.
    """
    rng, found = np.random.default_rng(seed), []
    scale = 1.2 / rules.dim**0.25
    wide = rules.is_distance and rules.dim > 512
    if wide and rules.model != Model.TRANSE_L2:
        scale = 8 / rules.dim
    relations = 2 * relations + rules.shared_rows
    for rows, width in ((nodes, rules.dim), (relations, rules.relation_width)):
        values = (scale * rng.standard_normal((rows, width))).astype(np.float32)
        if wide:
            values = np.round(values * 2**20) / np.float32(2**20)
        state = rng.random((rows, rules.state_width(width))).astype(np.float32)
        found.append(Table(values, state))
    return found[0], found[1] if rules.relation_width else None


def rules_of(model, dim, *more, **options):
    if model == Model.TUCKER:
        options = {"relation_dim": 7} | options
    return EmbedRules(model, dim, *more, **options)


def batch_of(rules, edges, count, nodes, relations, shared=False, weighted=False):
    """A batch in which nodes come more than once, and are some of their own negatives."""
    rng = np.random.default_rng(edges + count)
    shape = len(rules.sides), rules.chunks(edges), count
    heads, tails = rng.integers(0, nodes, (2, edges), np.int64)
    negatives = rng.integers(0, nodes, (1, 1, count) if shared else shape, np.int32)
    negatives[0, 0, 0] = tails[0] if rules.sides[0] == TAIL else heads[0]
    rows = rng.integers(0, relations, edges, np.int32) if rules.relation_width else None
    weights = None
    if weighted:  # far apart, and some are 0
        weights = (rng.integers(0, 4, edges) * 10.0 ** rng.integers(-1, 2, edges)).astype("f4")
    return Batch(heads, rows, tails, negatives, weights)


def in_halves(rules):
    """Return whether scores are made of products of values that are rounded to 11 bits."""
    return not rules.is_distance or (rules.model == Model.TRANSE_L2 and rules.dim <= 512)


def gradients(cuda, nodes, relations, batch, rules):
    """Return a batch's loss and gradients: what a step of SGD subtracts, so long that only that is
    left of rows."""
    tables = [table and replace(table, values=table.values.copy()) for table in (nodes, relations)]
    loss = cuda.step(*tables, batch, replace(rules, optimizer=Optimizer.SGD), _LONG)
    found = [
        old and (old.values.astype("f8") - new.values) / _LONG
        for old, new in zip((nodes, relations), tables, strict=True)
    ]
    return loss, *found


def compare_gradients(cuda, rules, edges=11, count=7, nodes=30, relations=4, **how):
    tables = tables_of(rules, nodes, relations)
    batch = batch_of(rules, edges, count, nodes, relations, **how)
    loss, *slopes = naive.gradients(*tables, batch, rules)
    got_loss, *got_slopes = gradients(cuda, *map(put, tables), put(batch), rules)
    close = 2e-3 if in_halves(rules) else 2e-5
    assert float(got_loss) == pytest.approx(loss, rel=close)
    if rules.model == Model.ROTATE and rules.dim > 512:
        close = 5e-4  # of this many complex numbers some nearly meet, and rounding turns their unit
    for got, slope in zip(got_slopes, slopes, strict=True):
        if slope.size:
            largest = np.abs(slope).max()
            assert largest > 0
            np.testing.assert_allclose(got.get(), slope, rtol=close, atol=close * largest)


@MODELS
@pytest.mark.parametrize("loss", [Loss.SOFTMAX, Loss.MARGIN], ids=lambda loss: loss.name)
def test_ragged_tiles(cuda, model, loss):
    rules = rules_of(model, 8, loss, margin=2.0)
    if loss == Loss.MARGIN and in_halves(rules):
        rules = replace(rules, margin=30.0)  # rounding decides nothing
    for edges, count, chunk in (
        *((1, 1, 1), (1, 300, 7), (300, 1, 290), (70, 33, 70)),
        *((65, 64, 64), (260, 65, 257), (140, 129, 50)),
    ):
        compare_gradients(cuda, replace(rules, chunk=chunk), edges, count, 500)


@MODELS
def test_dimensions(cuda, model):
    odd = () if model in (Model.COMPLEX, Model.ROTATE) else (1, 33)
    for dim in (2, 16, 34, 100, 128, 130, 256, 270, 512, *odd):
        compare_gradients(cuda, rules_of(model, dim, chunk=20), 37, 19, 60)


@MODELS
@LOSSES
def test_negatives_shared_by_all_and_by_both_sides(cuda, model, loss):
    rules = rules_of(model, 8, loss, chunk=9, margin=30.0, temperature=0.5)
    compare_gradients(cuda, rules, 40, 500, 60, shared=True)


@MODELS
@LOSSES
@pytest.mark.parametrize("inverse", [0, 4])
def test_weights_multiply_the_losses_of_edges(cuda, model, loss, inverse):
    rules = rules_of(model, 24, loss, chunk=40, inverse=inverse, margin=30.0, temperature=0.5)
    compare_gradients(cuda, rules, 170, 70, 60, weighted=True)
    compare_gradients(cuda, rules, 300, 500, 60, weighted=True, shared=True)
    if not rules.has_matrices:
        compare_gradients(cuda, replace(rules, dim=520), 47, 19, 60, weighted=True)


@pytest.mark.parametrize("sides", [(TAIL,), (HEAD,), (TAIL, HEAD)], ids=str)
@pytest.mark.parametrize("inverse", [0, 4])
@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("model", [Model.RESCAL, Model.TUCKER], ids=lambda model: model.name)
def test_matrices(cuda, model, sides, inverse, power):
    rules = rules_of(model, 70, sides=sides, chunk=40, inverse=inverse, power=power)
    rules = replace(rules, node_penalty=0.03, relation_penalty=0.01)
    for relations in (1, 4):
        compare_gradients(
            cuda, replace(rules, inverse=inverse and relations), 90, 30, 60, relations
        )


@pytest.mark.parametrize("loss", [Loss.SOFTMAX, Loss.LOGISTIC], ids=lambda loss: loss.name)
@pytest.mark.parametrize("size", [3e-6, 1e-4, 30.0, 3e5])
def test_rows_of_any_size(cuda, loss, size):
    """Halves end at 65504 and at 6e-8: rows have scales."""
    rules = EmbedRules(Model.DOT, 24, loss, chunk=40)
    nodes, _ = tables_of(rules, 90, 1)
    nodes.values[:] *= size
    nodes.values[::2] *= 1 / size**2  # their products with the others are about 1
    batch = batch_of(rules, 77, 50, 90, 1)
    odd, even = batch.tails | 1, batch.heads & ~1
    batch = replace(batch, heads=np.minimum(even, 88), tails=odd, negatives=batch.negatives | 1)
    batch.negatives[1] &= ~1
    expected, slope, _ = naive.gradients(nodes, None, batch, rules)
    got, got_slope, _ = gradients(cuda, put(nodes), None, put(batch), rules)
    assert float(got) == pytest.approx(expected, rel=2e-3)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        largest = np.abs(slope[part]).max()
        np.testing.assert_allclose(got_slope[part].get(), slope[part], atol=3e-3 * largest)


@pytest.mark.parametrize("loss", [Loss.LOGISTIC, Loss.MARGIN], ids=lambda loss: loss.name)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 1e4])
def test_l2_distances_of_rows_of_any_size(cuda, loss, size):
    rules = EmbedRules(Model.TRANSE_L2, 24, loss, chunk=40, margin=1e6)
    nodes, relations = tables_of(rules, 90, 4)
    nodes.values[:] *= size
    nodes.values[::3] *= 20  # rows of one product have unlike scales
    relations.values[:] *= size
    batch = batch_of(rules, 77, 50, 90, 4)
    expected, slope, _ = naive.gradients(nodes, relations, batch, rules)
    got, got_slope, _ = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    assert float(got) == pytest.approx(expected, rel=2e-3)
    np.testing.assert_allclose(got_slope.get(), slope, atol=3e-3 * np.abs(slope).max())


@pytest.mark.parametrize("dim", [24, 100, 300])
@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.name)
def test_l2_distances_of_rows_that_meet(cuda, loss, dim):
    """The slope of a distance of 0 is 0; that of one that rounding hides is too short."""
    rules = EmbedRules(Model.TRANSE_L2, dim, loss, chunk=40, margin=30.0)
    nodes, relations = tables_of(rules, 90, 4)
    relations.values[:] = 0
    nodes.values[30:60] = nodes.values[:30]
    batch = batch_of(rules, 77, 50, 90, 4)
    expected, slope, typed = naive.gradients(nodes, relations, batch, rules)
    got, got_slope, got_typed = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    # Distances of 0 count as what rounding leaves of them, a thousandth of a row's size.
    assert float(got) == pytest.approx(expected, rel=5e-3)
    for mine, truth in ((got_slope, slope), (got_typed, typed)):
        np.testing.assert_allclose(mine.get(), truth, atol=5e-3 * np.abs(slope).max())
    nodes.values[30:60] *= 1 + 1e-6
    found = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    assert all(np.isfinite(array.get()).all() for array in found)
    named = np.bincount(
        np.concatenate([batch.heads, batch.tails, batch.negatives.ravel()]), minlength=90
    )
    assert (np.linalg.norm(found[1].get(), axis=1) <= 2 * 77 * np.maximum(named, 1)).all()


@pytest.mark.parametrize("dim", [100, 128, 512])
def test_l2_distances_of_splits_without_a_tile(cuda, monkeypatch, dim):
    """The last chunk has one edge: most blocks have nothing to add, whatever memory held before."""
    import cupy as cp

    from penstock.kernels.cuda.embed.tiles import Tiles

    dirty = cp.RawKernel(
        r"""extern "C" __global__ void dirty(int count) {
          extern __shared__ unsigned shared[];
          volatile unsigned* all = shared;
          for (int i = threadIdx.x; i < count; i += blockDim.x) all[i] = 0x7E007E00u;
        }""",
        "dirty",
    )
    dirty.max_dynamic_shared_size_bytes = 200_000
    run = Tiles.run

    def after_nans(tiles, *args):
        dirty((528,), (256,), (np.int32(50_000),), shared_mem=200_000)
        run(tiles, *args)

    monkeypatch.setattr(Tiles, "run", after_nans)
    rules = EmbedRules(Model.TRANSE_L2, dim, chunk=2048)
    tables = [put(table) for table in tables_of(rules, 500, 4)]
    batch = batch_of(rules, 2049, 64, 500, 4)
    _, slope, _ = naive.gradients(*tables_of(rules, 500, 4), batch, rules)
    given = put(batch)
    for _ in range(50):
        _, got, _ = gradients(cuda, *tables, given, rules)
        assert bool(cp.isfinite(got).all())
    np.testing.assert_allclose(got.get(), slope, atol=5e-3 * np.abs(slope).max())


def test_l2_distances_far_from_the_origin(cuda):
    """Distances do not depend on where rows lie; what rounding makes of them does, and is small."""
    rules = EmbedRules(Model.TRANSE_L2, 64, chunk=40)
    nodes, relations = tables_of(rules, 90, 4)
    batch = batch_of(rules, 77, 50, 90, 4)
    nodes.values[:] += 8
    expected, slope, _ = naive.gradients(nodes, relations, batch, rules)
    got, got_slope, _ = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    assert float(got) == pytest.approx(expected, rel=5e-3)
    np.testing.assert_allclose(got_slope.get(), slope, atol=1e-2 * np.abs(slope).max())


@pytest.mark.parametrize("rows", [1, 200, 70_000, 20_000_000])
@pytest.mark.parametrize("slots", [0, 1, 2])
def test_sorted_rows(rows, slots):
    import cupy as cp

    from penstock.kernels.cuda.embed.sort import sort_rows

    rng = np.random.default_rng(rows)
    for count in (1, 31, 2048, 2049, 100_000):
        parts = [rng.integers(0, rows, size) for size in (count, count, 50)]
        relations, adds = rng.integers(0, 9, count), (rows, rows + 9)[:slots]
        every = np.concatenate([*parts, *(relations + add for add in adds)])
        on_gpu = [cp.asarray(part.astype(np.int32)) for part in (*parts, relations)]
        found = sort_rows(
            tuple(on_gpu[:3]), 2 * count, rows + 18, on_gpu[3] if slots else None, adds
        )
        np.testing.assert_array_equal(
            found.keys.get(), np.sort(every << 32 | np.arange(len(every)))
        )
        _, begin, where, times = np.unique(
            every, return_index=True, return_inverse=True, return_counts=True
        )
        alone = times[where] == 1
        alone[2 * count :] = False
        np.testing.assert_array_equal(found.alone.get(), alone[: 2 * count])
        listed = np.sort(found.begins.get()[: int(found.listed[0])])
        np.testing.assert_array_equal(listed, (np.cumsum(times) - times)[~alone[begin]])


@pytest.mark.parametrize(
    ("model", "dim"),
    [
        (Model.DOT, 24),
        (Model.COMPLEX, 24),
        (Model.COMPLEX, 520),
        (Model.RESCAL, 24),
        (Model.TUCKER, 24),
        (Model.TRANSE_L2, 24),
        (Model.ROTATE, 24),
        (Model.ROTATE, 640),
    ],
    ids=str,
)
@pytest.mark.parametrize("optimizer", [Optimizer.ADAGRAD, Optimizer.ADAM], ids=str)
def test_captured_steps(cuda, model, dim, optimizer):
    """A step that is launched as one CUDA graph gives the bits of one launched kernel by kernel."""
    rules = rules_of(model, dim, chunk=40, optimizer=optimizer)
    tables = tables_of(rules, 400, 5)
    batches = [
        batch_of(rules, edges, 30, 400, 5, weighted=number > 3)
        for number, edges in enumerate((90, 90, 90, 70, 90, 70, 70, 90, 90))
    ]
    batches[2].heads[:] = 3
    found = []
    for captured in (False, True):
        on_gpu = [put(table) for table in tables]
        losses = []
        with cuda.workspace() as work:
            for number, batch in enumerate(batches, 1):
                lr = 0.1 / number
                given = work if captured else None
                losses.append(cuda.step(*on_gpu, put(batch), rules, lr, number, given))
            losses = [float(loss) for loss in losses]
        values = [array.get().tobytes() for t in on_gpu if t for array in (t.values, t.state)]
        found.append((losses, values))
    assert found[0] == found[1]
    assert len(set(found[0][0])) > 3


@pytest.mark.parametrize("edges", [33, 1100, 2200, 150_000])
def test_rows_named_very_often(cuda, edges):
    """A relation and a node of all edges: their gradients are summed in several rounds."""
    rules = EmbedRules(Model.DISTMULT, 4, chunk=edges)
    nodes, relations = tables_of(rules, 50, 1)
    batch = batch_of(rules, edges, 5, 50, 1)
    batch.heads[:] = 7
    batch.negatives[:] = 7
    batch.negatives[:, :, 0] = 3
    loss, *slopes = naive.gradients(nodes, relations, batch, rules)
    got, *got_slopes = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    assert float(got) == pytest.approx(loss, rel=1e-3)  # two negatives: nothing averages out
    for ours, slope in zip(got_slopes, slopes, strict=True):
        np.testing.assert_allclose(ours.get(), slope, atol=1e-3 * np.abs(slope).max())


@pytest.fixture
def clusters():
    from penstock.kernels.cuda.embed.tiles import WIDEST, widest_distance

    if widest_distance() == WIDEST:
        pytest.skip("needs a GPU of compute capability 9.0 or later")


@DISTANCES
@LOSSES
@pytest.mark.usefixtures("clusters")
def test_distances_of_wide_rows(cuda, model, loss):
    """Rows that lie in the shared memory of several blocks."""
    margin = 0.25 if loss == Loss.MARGIN else 9.0  # some are above, some below
    for dim in (514 if model == Model.ROTATE else 513, 640, 1000, 2000):
        rules = rules_of(model, dim, loss, chunk=20, margin=margin, temperature=0.5)
        compare_gradients(cuda, rules, 47, 19, 60)


@DISTANCES
@pytest.mark.parametrize("sides", [(TAIL,), (HEAD,), (TAIL, HEAD)], ids=str)
@pytest.mark.parametrize("inverse", [0, 4])
@pytest.mark.usefixtures("clusters")
def test_sides_of_wide_rows(cuda, model, sides, inverse):
    rules = rules_of(model, 700, sides=sides, chunk=20, inverse=inverse, node_penalty=0.03)
    compare_gradients(cuda, rules, 47, 19, 60)


@DISTANCES
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.usefixtures("clusters")
def test_ragged_tiles_of_wide_rows(cuda, model, shared):
    """Several tiles that come, one after another and in splits."""
    for edges, count, chunk in (
        *((1, 1, 1), (1, 300, 7), (130, 1, 120), (65, 64, 64), (100, 200, 70), (70, 300, 70)),
    ):
        rules = rules_of(model, 514, chunk=chunk)
        compare_gradients(cuda, rules, edges, count, 500, shared=shared)


@DISTANCES
@pytest.mark.usefixtures("clusters")
def test_wide_distances_where_slices_end(cuda, model):
    odd = () if model == Model.ROTATE else (1025, 1027, 2049, 2051)
    for dim in (1024, 1026, 2048, 2050, 4096, *odd):
        compare_gradients(cuda, rules_of(model, dim, chunk=20), 37, 19, 60)


@DISTANCES
@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.usefixtures("clusters")
def test_steps_of_wide_distances(cuda, model, optimizer):
    rules = rules_of(model, 640, chunk=10, optimizer=optimizer, epsilon=1e-4)
    tables = tables_of(rules, 200, 5)
    on_gpu = [put(table) for table in tables]
    batch = batch_of(rules, 33, 20, 200, 5)
    before = [table.values.copy() for table in tables]
    loss = naive.step(*tables, batch, rules, 0.1, 3)
    assert float(cuda.step(*on_gpu, put(batch), rules, 0.1, 3)) == pytest.approx(loss, rel=1e-4)
    for ours, truth, was in zip(on_gpu, tables, before, strict=True):
        np.testing.assert_allclose(ours.values.get(), truth.values, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(ours.state.get(), truth.state, rtol=1e-3, atol=1e-4)
        still = (truth.values == was).all(axis=1)
        np.testing.assert_array_equal(ours.values.get()[still], was[still])
        assert not still.all()


@DISTANCES
@LOSSES
@pytest.mark.usefixtures("clusters")
def test_nan_of_wide_rows_is_seen_in_the_loss(cuda, model, loss):
    rules = rules_of(model, 600, loss, chunk=8)
    nodes, relations = tables_of(rules, 20, 2)
    batch = batch_of(rules, 10, 6, 20, 2)
    nodes.values[batch.negatives[1, 1, 3], -1] = np.nan  # of the last slice
    got, *_ = gradients(cuda, put(nodes), put(relations), put(batch), rules)
    assert np.isnan(float(got))


PRODUCTS = [Model.DOT, Model.DISTMULT, Model.COMPLEX]


@pytest.mark.parametrize("model", PRODUCTS, ids=lambda model: model.name)
@LOSSES
@pytest.mark.parametrize("sides", [(HEAD,), (TAIL, HEAD)], ids=str)
@pytest.mark.parametrize("inverse", [0, 4])
def test_wide_rows(cuda, model, loss, sides, inverse):
    """Rows that tiles do not hold: their scores lie in memory."""
    rules = EmbedRules(
        model, 514, loss, sides, chunk=20, inverse=inverse, margin=30.0, temperature=0.5
    )
    compare_gradients(cuda, rules, 47, 19, 60)


@pytest.mark.parametrize("model", PRODUCTS, ids=lambda model: model.name)
@pytest.mark.parametrize("dim", [516, 1000, 1024, 2050, 4096])
def test_wide_dimensions(cuda, model, dim):
    rules = rules_of(model, dim, chunk=20, node_penalty=0.03, relation_penalty=0.05)
    compare_gradients(cuda, rules, 37, 19, 60, shared=True)
    if model != Model.COMPLEX:
        compare_gradients(cuda, replace(rules, dim=dim + 1 if dim < 4096 else dim - 1), 1, 1, 60)


@pytest.mark.parametrize("at_once", [1, 40, 100])
@pytest.mark.parametrize("shared", [False, True])
def test_wide_rows_some_edges_at_a_time(cuda, monkeypatch, at_once, shared):
    from penstock.kernels.cuda.embed import wide

    monkeypatch.setattr(wide, "SCORES", at_once)
    compare_gradients(cuda, EmbedRules(Model.COMPLEX, 520, chunk=20), 47, 10, 60, shared=shared)


def test_wide_rows_without_a_negative_left(cuda):
    rules = EmbedRules(Model.DISTMULT, 520, Loss.SELF_ADVERSARIAL, (TAIL,), chunk=4, margin=1.0)
    tables = tables_of(rules, 9, 2)
    batch = batch_of(rules, 4, 3, 9, 2)
    batch.tails[:] = 5
    batch.negatives[:] = 5
    loss, *slopes = naive.gradients(*tables, batch, rules)
    got_loss, *got = gradients(cuda, *map(put, tables), put(batch), rules)
    assert float(got_loss) == pytest.approx(loss, rel=2e-3)
    for found, slope in zip(got, slopes, strict=True):
        np.testing.assert_allclose(found.get(), slope, rtol=2e-3, atol=2e-3 * np.abs(slope).max())


def test_what_prepares_a_captured_step_is_done_before_its_inputs_are_staged():
    """It may have used memory that the inputs were given, and they are staged on another stream."""
    import cupy as cp

    from penstock.kernels.cuda.embed import cuda_graphs

    spin = cp.RawKernel(
        'extern "C" __global__ void spin(long long ticks) {'
        " const long long end = clock64() + ticks; while (clock64() < end) {} }",
        "spin",
    )
    spin((1,), (1,), (np.int64(1000),))
    streams, idle = [], []

    def prepare():
        streams.append(cp.cuda.get_current_stream())
        spin((1,), (1,), (np.int64(200_000_000),))  # a tenth of a second
        return cp.zeros(4, cp.float32)

    def stage(inputs):
        # The first step is not captured: it is staged on the stream that prepares it.
        idle.append(len(streams) == 1 or bool(streams[-1].done))
        inputs.fill(len(idle))

    with cuda_graphs.Workspace() as work:
        for number in (1, 2, 3):
            found = work.run("key", prepare, stage, lambda inputs: inputs + 1)
            np.testing.assert_array_equal(found.get(), number + 1)
    assert idle == [True] * 3
    assert len(streams) == 2
