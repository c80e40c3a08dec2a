from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from penstock.kernels.embed_rules import (
    Batch,
    EmbedRules,
    Known,
    Loss,
    Model,
    NegativePool,
    Optimizer,
    Side,
    Table,
)
from penstock.kernels.naive import embed as naive

NODES, RELATIONS = 30, 4
MODELS = pytest.mark.parametrize("model", list(Model), ids=lambda model: model.name)
LOSSES = pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.name)
BOTH = (Side.TAIL, Side.HEAD)


def rules_of(model, **options):
    # The margin of TUCKER: no pair of scores is as near to it as a GPU's rounding to 11 bits.
    margin = 1.55 if model == Model.TUCKER else 1.5
    options = {"dim": 6, "chunk": 4, "margin": margin, "temperature": 0.7, **options}
    if model == Model.TUCKER:
        options = {"relation_dim": 5} | options
    return EmbedRules(model=model, **options)


def tables_of(rules, nodes=NODES, relations=RELATIONS, scale=0.8, seed=0, dtype="float32"):
    """Random nodes and relations, with as many inverses; states are not 0."""
    rng = np.random.default_rng(seed)
    found = []
    relations = 2 * relations + rules.shared_rows
    for rows, width in ((nodes, rules.dim), (relations, rules.relation_width)):
        values = (scale * rng.standard_normal((rows, width))).astype(dtype)
        state = rng.random((rows, rules.state_width(width))).astype("float32")
        found.append(Table(values, state))
    return found[0], found[1] if rules.relation_width else None


def batch_of(rules, edges=11, count=7, seed=1, nodes=NODES, dtype="int32", weighted=False):
    """A batch in which nodes come more than once, and are some of their own negatives."""
    rng = np.random.default_rng(seed)
    shape = len(rules.sides), rules.chunks(edges), count
    heads, tails = rng.integers(0, nodes, (2, edges)).astype(dtype)
    negatives = rng.integers(0, nodes, shape).astype(dtype)
    negatives[0, 0, 0] = tails[0] if rules.sides[0] == Side.TAIL else heads[0]
    relations = rng.integers(0, RELATIONS, edges).astype(dtype) if rules.relation_width else None
    weights = None
    if weighted:
        weights = (4 * rng.random(edges)).astype("float32")
        weights[1] = 0
    return Batch(heads, relations, tails, negatives, weights)


def score_by_definition(model, h, r, t):
    """The score of one head and relation with tails, or of heads with one tail."""
    if model == Model.DOT:
        return (h * t).sum(-1)
    if model == Model.DISTMULT:
        return (h * r * t).sum(-1)
    if model in (Model.TRANSE_L1, Model.TRANSE_L2):
        return -np.linalg.norm(h + r - t, 1 if model == Model.TRANSE_L1 else 2, axis=-1)
    if model in (Model.RESCAL, Model.TUCKER):
        return ((h @ r.reshape(6, 6)) * t).sum(-1)
    half = h.shape[-1] // 2
    h, t = (x[..., :half] + 1j * x[..., half:] for x in (h, t))
    if model == Model.ROTATE:
        return -np.abs(h * np.exp(1j * r) - t).sum(-1)
    return (h * (r[:half] + 1j * r[half:]) * t.conj()).sum(-1).real


def penalty_by_definition(model, x, power):
    if model in (Model.COMPLEX, Model.ROTATE):
        x = x[: len(x) // 2] + 1j * x[len(x) // 2 :]
    return (np.abs(x) ** power).sum()


def losses_by_definition(x, r, batch, rules, begun):
    """The loss of every edge and side, one at a time.

    begun  values that weights of self-adversarial negatives are of, which have no gradient
    """
    for place, side in enumerate(rules.sides):
        for e, (head, tail) in enumerate(zip(batch.heads, batch.tails, strict=True)):
            relation = 0 if batch.relations is None else batch.relations[e]
            given, answer = (head, tail) if side == Side.TAIL else (tail, head)
            inverse = rules.inverse and side == Side.HEAD
            relation = relation + rules.inverse if inverse else relation

            def score(nodes, x, r, given=given, relation=relation, inverse=inverse, side=side):
                of = None if r is None else r[relation]
                if rules.model == Model.TUCKER:  # its matrices, weighted and added up
                    of = (r[-36:].T * of[:, None]).sum(axis=0)
                if side == Side.TAIL or inverse:
                    return score_by_definition(rules.model, x[given], of, x[nodes])
                return score_by_definition(rules.model, x[nodes], of, x[given])

            negatives = batch.negatives[place, e // rules.chunk]
            left = negatives[negatives != answer]
            p, n = score(answer, x, r), score(left, x, r)
            if rules.loss == Loss.SOFTMAX:
                loss = -np.log(np.exp(p) / (np.exp(p) + np.exp(n).sum()))
            elif rules.loss == Loss.CONTRASTIVE:  # equation 1 of the Legend paper
                loss = -(p - np.log(np.exp(n).sum()))
            elif rules.loss == Loss.LOGISTIC:
                loss = -np.log(1 / (1 + np.exp(-p)))
                loss -= np.log(1 - 1 / (1 + np.exp(-n))).sum() / len(negatives)
            elif rules.loss == Loss.MARGIN:
                loss = np.maximum(0, rules.margin - p + n).sum() / len(negatives)
            else:  # of distances d, -log s(margin - d) - sum w log s(d' - margin): RotatE's
                weights = np.exp(rules.temperature * score(left, *begun))
                loss = -np.log(1 / (1 + np.exp(-(rules.margin + p))))
                likely = np.log(1 / (1 + np.exp(rules.margin + n)))
                loss -= (weights / weights.sum() * likely).sum()
            if batch.weights is not None:
                loss = loss * batch.weights[e]
            for node in (head, tail):
                by = penalty_by_definition(rules.model, x[node], rules.power)
                loss = loss + rules.node_penalty * by
            if rules.model not in (Model.DOT, Model.ROTATE):
                by = penalty_by_definition(rules.model, r[relation], rules.power)
                loss = loss + rules.relation_penalty * by
            yield loss


@MODELS
@LOSSES
def test_a_step_goes_down_the_loss_that_the_papers_define(backend, model, loss):
    """The step of SGD is the gradient: of losses that are written here edge by edge."""
    for inverse, power, sides in (
        (0, 2, BOTH),
        (0, 3, BOTH[:1]),
        (0, 3, BOTH[1:]),
        (RELATIONS, 3, BOTH),
        (RELATIONS, 2, BOTH[1:]),
    ):
        how = {"inverse": inverse, "power": power, "sides": sides, "optimizer": Optimizer.SGD}
        penalties = {"node_penalty": 0.03, "relation_penalty": 0.05}
        for weighted in (False, True):
            goes_down(backend, rules_of(model, loss=loss, **how, **penalties), weighted)


def goes_down(backend, rules, weighted):
    tables = tables_of(rules)
    batch = batch_of(rules, edges=7, count=5, weighted=weighted)
    found = [backend.put(table) for table in tables]
    got = backend.module("embed").step(*found, backend.put(batch), rules, 1.0)
    begun = [table and table.values.astype(np.float64) for table in tables]

    def total(*values):
        return sum(losses_by_definition(*values, batch, rules, begun))

    loose = backend.name == "cuda" and (not rules.is_distance or rules.model == Model.TRANSE_L2)
    assert float(got) == pytest.approx(total(*begun), rel=5e-3 if loose else 1e-5), rules
    rng = np.random.default_rng(3)
    for table, ours in enumerate(found):
        if ours is None:
            continue
        slope = begun[table] - backend.get(ours.values)
        rest = (3e-2 if loose else 1e-4) * np.linalg.norm(slope)
        for _ in range(3):
            way = rng.standard_normal(slope.shape)
            ahead, behind = (
                total(*(x + sign * 1e-6 * way if n == table else x for n, x in enumerate(begun)))
                for sign in (1, -1)
            )
            expected = (ahead - behind) / 2e-6
            assert (slope * way).sum() == pytest.approx(expected, abs=rest), (table, rules)


def test_a_query_without_negatives_left_has_no_loss_of_negatives(backend):
    for loss, expected in (
        (Loss.SOFTMAX, 0),
        (Loss.CONTRASTIVE, 0),
        (Loss.LOGISTIC, np.log1p(np.exp(-2.0))),
        (Loss.MARGIN, 0),
        (Loss.SELF_ADVERSARIAL, np.log1p(np.exp(-3.5))),
    ):
        rules = rules_of(Model.DOT, dim=2, loss=loss, sides=(Side.TAIL,))
        nodes = Table(np.array([[1, 0], [2, 5]], "float32"), np.ones((2, 2), "float32"))
        batch = Batch(np.array([0]), None, np.array([1]), np.array([[[1, 1]]]))
        for module, put in ((naive, deepcopy), (backend.module("embed"), backend.put)):
            table = put(nodes)
            found = module.step(table, None, put(batch), rules, 0.1)
            assert float(found) == pytest.approx(expected, abs=1e-6), loss.name
            assert np.isfinite(backend.get(table.values)).all()


def pool_of(ranges, *, alias=False, seed=0):
    first, counts = np.array(ranges, np.int64).T
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not alias:
        return NegativePool(first.copy(), start)
    rng = np.random.default_rng(seed)
    total = int(start[-1])
    chance = rng.random(total).astype("float32")
    other = rng.integers(0, total, total).astype("int32")
    return NegativePool(first.copy(), start, chance, other)


POOLS = [
    pool_of([(0, 1)]),
    pool_of([(5, 10), (100, 3), (40, 7)]),
    pool_of([(5, 10), (100, 0), (40, 7)], alias=True),
    pool_of([(7, 64)], alias=True),
    pool_of([(0, 2**31 - 1)]),
]


def test_negatives_come_from_the_pool_as_often_as_they_should():
    pool = POOLS[2]
    drawn = naive.draw_negatives(7, 3, 2, 50, 1000, pool)
    assert drawn.shape == (2, 50, 1000)
    rows = np.concatenate([np.arange(5, 15), np.arange(40, 47)])
    share = pool.chance.astype(float) / 17
    np.add.at(share, pool.other, (1 - pool.chance.astype(float)) / 17)
    found = np.array([(drawn == row).sum() for row in rows])
    assert found.sum() == drawn.size
    expected = share * drawn.size
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected))
    others = [naive.draw_negatives(7, 4, 2, 50, 1000, pool)]
    others.append(naive.draw_negatives(8, 3, 2, 50, 1000, pool))
    assert all(np.mean(other == drawn) < 0.3 for other in others)


def sample_of_known(queries, ids, dtype="int32"):
    rng = np.random.default_rng(3)
    rows = [np.sort(rng.choice(ids, rng.integers(0, 6), replace=False)) for _ in range(queries)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Known(indptr, np.concatenate(rows).astype(dtype))


@pytest.mark.parametrize(
    "pool", POOLS, ids=["one", "ranges", "alias, ranges", "alias, one", "wide"]
)
def test_negatives_equal_naive(backend, pool, same):
    arguments = (1 << 40) + 5, (1 << 33) + 3, 2, 3, 700
    found = backend.module("embed").draw_negatives(*arguments, backend.put(pool))
    same(found, naive.draw_negatives(*arguments, pool))


def compare_steps(backend, rules, tables, batches, lr=0.1, rtol=2e-4, atol=2e-5):
    """Train some batches in the backend and in its naive twin, and compare all that changes."""
    # Rounded to 11 bits; squares are twice as far off.
    loose = backend.name == "cuda" and (not rules.is_distance or rules.model == Model.TRANSE_L2)
    rtol, atol, loss_rtol = (2e-2, 5e-3, 5e-3) if loose else (rtol, atol, rtol)
    expected, found = deepcopy(tables), [backend.put(table) for table in tables]
    with backend.module("embed").workspace(2) as work:
        for number, batch in enumerate(batches, 1):
            loss = backend.module("embed").step(*found, backend.put(batch), rules, lr, number, work)
            truth = naive.step(*expected, batch, rules, lr, number)
            assert float(loss) == pytest.approx(truth, rel=loss_rtol), (number, rules)
            for ours, theirs in zip(found, expected, strict=True):
                if theirs is not None:
                    for name in ("values", "state"):
                        mine = backend.get(getattr(ours, name))
                        np.testing.assert_allclose(mine, getattr(theirs, name), rtol, atol)


@MODELS
@LOSSES
@pytest.mark.parametrize("optimizer", list(Optimizer), ids=lambda each: each.name)
def test_steps_equal_naive(backend, model, loss, optimizer):
    rules = rules_of(model, loss=loss, optimizer=optimizer)
    lr = 0.01 if optimizer == Optimizer.SGD else 0.1
    batches = [batch_of(rules, seed=s, weighted=s == 2) for s in (1, 2, 3)]
    compare_steps(backend, rules, tables_of(rules), batches, lr)


@MODELS
@pytest.mark.parametrize(
    ("power", "inverse", "sides"),
    [(2, 0, BOTH), (3, 0, BOTH[1:]), (3, RELATIONS, BOTH[:1]), (2, RELATIONS, BOTH[1:])],
)
def test_penalties_inverses_and_sides_equal_naive(backend, model, power, inverse, sides):
    rules = rules_of(
        model, power=power, inverse=inverse, sides=sides, node_penalty=0.02, relation_penalty=0.03
    )
    batches = [batch_of(rules, dtype=dtype) for dtype in ("int32", "int64")]
    compare_steps(backend, rules, tables_of(rules), batches)


@pytest.mark.parametrize(
    "model", [Model.COMPLEX, Model.DOT, Model.RESCAL, Model.TRANSE_L1], ids=lambda m: m.name
)
@pytest.mark.parametrize(
    ("edges", "chunk", "count", "dim"), [(1, 1, 1, 2), (700, 5000, 333, 34), (1301, 600, 65, 100)]
)
def test_batches_of_several_pieces_and_tiles_equal_naive(backend, model, edges, chunk, count, dim):
    rules = rules_of(model, dim=dim, chunk=chunk, temperature=1.0)
    tables = tables_of(rules, nodes=900, scale=0.3)
    batch = batch_of(rules, edges, count, nodes=900, weighted=edges == 700)
    compare_steps(backend, rules, tables, [batch], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", [Model.COMPLEX, Model.ROTATE], ids=lambda model: model.name)
def test_every_node_as_a_negative_shared_by_all_equals_naive(backend, model):
    rules = rules_of(model, chunk=400, inverse=RELATIONS)
    batch = batch_of(rules, edges=900, nodes=500)
    batch = replace(batch, negatives=np.arange(500, dtype="int32")[None, None])
    compare_steps(backend, rules, tables_of(rules, 500), [batch], rtol=1e-3, atol=1e-4)


@LOSSES
def test_a_value_that_is_not_finite_makes_the_loss_so(backend, loss):
    for model in Model:
        rules = rules_of(model, loss=loss)
        for place in ("heads", "negatives"):
            nodes, relations = tables_of(rules)
            batch = batch_of(rules)
            nodes.values[getattr(batch, place).flat[2], 1] = np.nan
            tables = backend.put(nodes), backend.put(relations)
            found = backend.module("embed").step(*tables, backend.put(batch), rules, 0.1)
            assert np.isnan(float(found)), (model, place)


@pytest.mark.parametrize(
    ("model", "dim"), [(Model.COMPLEX, 100), (Model.RESCAL, 40), (Model.TUCKER, 40)]
)
def test_the_same_bits_come_out_on_any_number_of_threads(model, dim):
    from penstock.kernels.cpu import embed

    rules = rules_of(model, dim=dim, chunk=1500, relation_penalty=0.01)
    found = []
    for threads in (1, 2, 3):
        tables = tables_of(rules, nodes=2000, scale=0.2)
        with embed.workspace(threads) as work:
            losses = [
                embed.step(*tables, batch_of(rules, 4000, 300, seed, 2000), rules, 0.1, 1, work)
                for seed in (1, 2)
            ]
        found.append((losses, tables))
    for losses, tables in found[1:]:
        assert losses == found[0][0]
        for ours, theirs in zip(tables, found[0][1], strict=True):
            np.testing.assert_array_equal(ours.values, theirs.values)
            np.testing.assert_array_equal(ours.state, theirs.state)


def test_rows_may_lie_apart_with_their_state_next_to_them(backend):
    rules = rules_of(Model.COMPLEX)
    nodes, relations = tables_of(rules)
    joined = backend.put(np.concatenate([nodes.values, nodes.state], axis=1))
    apart = Table(joined[:, : rules.dim], joined[:, rules.dim :])
    batch = batch_of(rules)
    expected = backend.put(nodes)
    for table in (apart, expected):
        backend.module("embed").step(table, backend.put(relations), backend.put(batch), rules, 0.1)
    np.testing.assert_array_equal(backend.get(apart.values), backend.get(expected.values))
    np.testing.assert_array_equal(backend.get(apart.state), backend.get(expected.state))


def ranking(model, inverse=0):
    """Queries, tables with ties and NaN, and answers, some of which have no score."""
    rules = rules_of(model, dim=10, inverse=inverse)
    nodes, relations = tables_of(rules, nodes=5000)
    rng = np.random.default_rng(0)
    nodes.values[4000:4050] = nodes.values[3]
    nodes.values[50], nodes.values[60] = np.nan, 0
    queries = 150
    given = rng.integers(100, 5000, queries).astype("int32")
    given[7] = 50
    rows = rng.integers(0, RELATIONS, queries).astype("int32")
    answers = np.where(np.arange(queries) % 3, rng.integers(0, 5000, queries), 3)
    answers[11] = 50
    return rules, nodes, relations, given, rows, answers


@MODELS
@pytest.mark.parametrize("inverse", [0, RELATIONS])
def test_ranks_equal_naive(backend, model, inverse):
    rules, nodes, relations, given, rows, answers = ranking(model, inverse)
    known = sample_of_known(len(given), 5000)
    module, found = backend.module("embed"), []
    for side in BOTH:
        for here, put in ((naive, deepcopy), (module, backend.put)):
            table, factors = put(nodes.values), relations and put(relations.values)
            filters = put(known) if side == Side.TAIL else None
            asked = here.queries(table, factors, put(given), put(rows), side, rules)
            scores = here.answer_scores(asked, table[put(answers)], rules)
            counts = put(np.zeros((len(given), 2), np.int64))
            with here.workspace(2) as work:
                for first, last in ((0, 2100), (2100, 5000)):
                    # As rows lie that have their state next to them.
                    part = put(np.concatenate([nodes.values, nodes.values], axis=1))[first:last]
                    part = part[:, : rules.dim]
                    here.count(
                        asked, scores, put(answers), part, rules, counts, first, filters, work
                    )
            found.append((backend.get(scores), backend.get(counts)))
        np.testing.assert_allclose(found[-1][0], found[-2][0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[-1][1], found[-2][1])
    assert found[0][1][:, 1].max() >= 49
    assert np.isnan(found[0][0][[7, 11]]).all()


@pytest.mark.parametrize("model", [Model.DOT, Model.ROTATE], ids=lambda model: model.name)
def test_best_candidates_equal_naive(backend, model):
    rules, nodes, relations, given, rows, _ = ranking(model)
    given, rows = given[:8], rows[:8]
    known = sample_of_known(8, 5000, "int32" if backend.name == "cpu" else "int64")
    found = []
    for here, put in ((naive, deepcopy), (backend.module("embed"), backend.put)):
        table, factors = put(nodes.values), relations and put(relations.values)
        asked = here.queries(table, factors, put(given), put(rows), Side.TAIL, rules)
        for k in (1, 60, 5010):
            best, filters = None, put(known) if k > 1 else None
            for first, last in ((0, 2100), (2100, 5000)):
                best = here.top(asked, table[first:last], rules, k, first, filters, best)
            found.append([backend.get(each) for each in best])
    for (scores, ids), (true_scores, true_ids) in zip(found[3:], found[:3], strict=True):
        np.testing.assert_allclose(scores, true_scores, rtol=1e-5)
        np.testing.assert_array_equal(ids, true_ids)
        assert (true_ids[7] == -1).all()  # the query is not finite
    assert (found[2][1][0] >= 0).sum() == 4999 - np.diff(known.indptr)[0]
