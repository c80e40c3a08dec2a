import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from penstock.kernels.cpu import word2vec as cpu
from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import (
    ALWAYS,
    Exchange,
    Losses,
    Noise,
    Sentences,
    Word2vecRules,
)


def noise_of(counts, sample=None):
    keep = None if sample is None else naive.keep_thresholds(counts, sample)
    return Noise(*naive.noise_table(counts), keep)


def sentences_of(lists, lr=0.05, **more):
    """Return a block in which every sentence has another learning rate."""
    tokens = np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32)
    offsets = np.r_[0, np.cumsum([len(each) for each in lists])].astype(np.int64)
    lrs = np.linspace(lr, lr / 2, len(lists), dtype=np.float32)
    return Sentences(tokens, offsets, lrs, **more)


def vectors_of(words, dimension, seed=0):
    rng = np.random.default_rng(seed)
    both = rng.normal(0, 0.3, (2, words, dimension)).astype(np.float32)
    return both[0].copy(), both[1].copy()


def random_lists(rng, words, lengths):
    return [rng.integers(-1, words, length) for length in lengths]


# -- tables ----------------------------------------------------------------------------------------

some_counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=60).filter(any)


def test_words_are_counted_and_gaps_are_not():
    tokens = np.random.default_rng(3).integers(-1, 9, (40, 7)).astype(np.int32)
    for module in (naive, cpu):
        counts = np.arange(11)
        module.count_words(tokens, counts)
        found = [(tokens == word).sum() for word in range(11)]
        np.testing.assert_array_equal(counts, np.arange(11) + found)


@given(some_counts)
def test_noise_draws_words_as_their_counts_say(counts):
    given_counts = np.array(counts, np.int64)
    chance, alias = cpu.noise_table(given_counts)
    for ours, truth in zip((chance, alias), naive.noise_table(given_counts), strict=True):
        assert ours.dtype == truth.dtype
        np.testing.assert_array_equal(ours, truth)
    share = chance / 2.0**32
    drawn = share.copy()
    np.add.at(drawn, alias, 1 - share)
    exact = given_counts**0.75
    np.testing.assert_allclose(drawn / len(counts), exact / exact.sum(), atol=1e-8)
    assert not drawn[given_counts == 0].any()


@given(some_counts, st.floats(1e-6, 1))
def test_thresholds_are_the_chances_to_be_kept(counts, sample):
    given_counts = np.array(counts, np.int64)
    keep = cpu.keep_thresholds(given_counts, sample)
    np.testing.assert_array_equal(keep, naive.keep_thresholds(given_counts, sample))
    share = np.maximum(given_counts, 1) / given_counts.sum()
    chance = (np.sqrt(share / sample) + 1) * (sample / share)  # as word2vec.c has it
    np.testing.assert_allclose(keep / 2.0**32, np.minimum(chance, 1), atol=1e-6)
    assert (keep[chance > 1.001] == ALWAYS).all()


@pytest.mark.parametrize("dimension", [1, 4, 7, 128])
def test_start_is_uniform_and_any_rows_can_be_asked_for(dimension):
    words = np.arange(2000)
    rows = cpu.start_rows(5, words, dimension)
    np.testing.assert_array_equal(rows, naive.start_rows(5, words, dimension))
    np.testing.assert_array_equal(rows[[7, 3]], cpu.start_rows(5, np.array([7, 3]), dimension))
    assert abs(rows).max() <= 0.5 / dimension
    deciles, _ = np.histogram(rows, 10, (-0.5 / dimension, 0.5 / dimension))
    assert chisquare(deciles).pvalue > 1e-4


# -- draws -----------------------------------------------------------------------------------------


def test_words_are_kept_as_often_as_thresholds_say():
    counts = np.array([6000, 3000, 900, 100])
    noise = noise_of(counts, 0.05)
    words = np.repeat(np.arange(4), 5000)
    sentences = sentences_of([words, words], first=9, epoch=1)
    places = naive.kept_places(sentences, 0, noise, Word2vecRules(seed=2))
    kept = np.bincount(words[places], minlength=4)
    chance = noise.keep / 2.0**32
    error = np.sqrt(5000 * chance * (1 - chance))
    assert (abs(kept - 5000 * chance) <= 4 * error + 1e-3).all()
    assert kept[3] == 5000
    assert not np.array_equal(places, naive.kept_places(sentences, 1, noise, Word2vecRules(seed=2)))


@pytest.mark.parametrize("negatives", [1, 4, 5])
def test_negatives_come_as_often_as_their_counts_say(negatives):
    counts = np.array([1000, 500, 100, 10, 300, 0])
    noise, rules = noise_of(counts), Word2vecRules(negatives=negatives, seed=3)
    drawn = np.concatenate([naive.negatives(noise, rules, 77, t) for t in range(4000)])
    seen = np.bincount(drawn, minlength=6)
    expected = counts[:5] ** 0.75
    assert seen[5] == 0
    assert chisquare(seen[:5], expected / expected.sum() * seen.sum()).pvalue > 1e-4


@pytest.mark.parametrize("pool", [2, 7, 300])
def test_pools_are_of_words_as_counts_say_and_of_so_many_sentences(pool):
    counts = np.array([1000, 500, 100, 10, 300, 0])
    noise, rules = (
        noise_of(counts),
        Word2vecRules(negatives=11, seed=3, pool=pool, pool_sentences=3),
    )
    pools = [naive.pool(noise, rules, which) for which in range(3 * (4000 // pool + 2))]
    assert all(len(each) == pool for each in pools)
    for first in range(0, len(pools), 3):
        np.testing.assert_array_equal(pools[first], pools[first + 1])
        np.testing.assert_array_equal(pools[first], pools[first + 2])
    assert np.unique(np.stack(pools), axis=0).shape[0] > 1
    seen = np.bincount(np.concatenate(pools[::3]), minlength=6)
    expected = counts[:5] ** 0.75
    assert seen[5] == 0
    assert chisquare(seen[:5], expected / expected.sum() * seen.sum()).pvalue > 1e-4
    # Windows draw each word of a pool as often as any other.
    places = Noise(np.full(10**6, ALWAYS, np.uint32), np.arange(10**6, dtype=np.int32))
    words = naive.pool(places, rules, 5)
    drawn = np.concatenate([naive.negatives(places, rules, 5, t) for t in range(1000)])
    often = (drawn[:, None] == words).sum(axis=0)
    assert chisquare(often).pvalue > 1e-4


# -- the step --------------------------------------------------------------------------------------


def loss_of(x, y, context, targets):
    score = x[context] @ y[targets].T
    sign = np.r_[-1.0, np.ones(len(targets) - 1)]
    return float(np.log1p(np.exp(sign * score)).sum())


def slopes(x, y, context, targets):
    """Return the derivatives of the loss by small differences."""
    found = np.zeros_like(x), np.zeros_like(y)
    for which, matrix in enumerate((x, y)):
        for at in np.ndindex(matrix.shape):
            old = matrix[at]
            matrix[at] = old + 1e-6
            above = loss_of(x, y, context, targets)
            matrix[at] = old - 1e-6
            found[which][at] = (above - loss_of(x, y, context, targets)) / 2e-6
            matrix[at] = old
    return found


def test_a_step_goes_down_the_slope_of_the_loss():
    words = np.array([2, 0, 1, 0, 3])  # 0 stands twice in the context of 1
    noise, rules = (
        noise_of(np.array([5, 4, 3, 2])),
        Word2vecRules(half_window=2, negatives=3, seed=1),
    )
    vectors = vectors_of(4, 3)
    x, y = (matrix.astype(np.float64) for matrix in vectors)
    loss = pairs = 0.0
    for i in range(5):
        context = [int(words[j]) for j in range(max(i - 2, 0), min(i + 3, 5)) if j != i]
        drawn = naive.negatives(noise, rules, 4, i)
        targets = [int(words[i]), *(int(word) for word in drawn if word != words[i])]
        loss += loss_of(x, y, context, targets)
        pairs += len(context) * len(targets)
        down_x, down_y = slopes(x, y, context, targets)
        x, y = x - 0.1 * down_x, y - 0.1 * down_y
    block = Sentences(words.astype(np.int32), np.array([0, 5]), np.full(1, 0.1, np.float32), 4)
    for train in (naive.train, cpu.train):
        ours = [matrix.copy() for matrix in vectors]
        losses = train(*ours, block, noise, rules)
        assert (losses.pairs, losses.words, losses.kept) == (pairs, 5, 5)
        assert losses.loss == pytest.approx(loss, rel=1e-5)
        np.testing.assert_allclose(ours[0], x, atol=1e-5)
        np.testing.assert_allclose(ours[1], y, atol=1e-5)


@given(
    words=st.integers(1, 300),
    dimension=st.sampled_from([1, 2, 15, 16, 17, 64, 100, 128, 200, 1024]),
    half_window=st.integers(1, 9),
    negatives=st.sampled_from([0, 1, 2, 5, 6, 11, 20]),
    shared=st.integers(1, 9),
    pool=st.sampled_from([0, 0, 1, 5, 64, 1001]),
    pool_sentences=st.integers(1, 3),
    sample=st.sampled_from([None, 1e-3, 0.1]),
    lengths=st.lists(st.integers(0, 24), min_size=1, max_size=4),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=20, deadline=None)
def test_cores_train_as_the_truth_does(
    words, dimension, half_window, negatives, shared, pool, pool_sentences, sample, lengths, seed
):
    rng = np.random.default_rng(seed)
    noise = noise_of(rng.integers(1, 1000, words), sample)
    rules = Word2vecRules(half_window, negatives, seed, shared, pool, pool_sentences)
    block = sentences_of(random_lists(rng, words, lengths), first=2**39 + 1, epoch=3)
    truth, ours = vectors_of(words, dimension), vectors_of(words, dimension)
    expected, losses = (
        naive.train(*truth, block, noise, rules),
        cpu.train(*ours, block, noise, rules),
    )
    assert losses.loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-6)
    assert losses.pairs == expected.pairs
    assert (losses.words, losses.kept) == (expected.words, expected.kept)
    for got, wanted in zip(ours, truth, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-4 * max(1, abs(wanted).max()))


def test_blocks_in_order_give_the_same_vectors_however_they_are_cut():
    rng = np.random.default_rng(1)
    noise, rules = noise_of(rng.integers(1, 50, 100), 0.1), Word2vecRules(seed=8)
    block = sentences_of(random_lists(rng, 100, [50] * 900), first=6)
    whole, again, parts = vectors_of(100, 24), vectors_of(100, 24), vectors_of(100, 24)
    total = cpu.train(*whole, block, noise, rules)
    assert cpu.train(*again, block, noise, rules) == total
    found = Losses()
    for first, last in ((0, 1), (1, 500), (500, 900)):
        offsets = block.offsets[first : last + 1]
        tokens = block.tokens[offsets[0] : offsets[-1]]
        lrs = block.lrs[first:last]
        part = Sentences(tokens, offsets - offsets[0], lrs, first=6 + first)
        found += cpu.train(*parts, part, noise, rules)
    for matrix, same, pieced in zip(whole, again, parts, strict=True):
        np.testing.assert_array_equal(same, matrix)
        np.testing.assert_array_equal(pieced, matrix)
    assert found.loss == pytest.approx(total.loss, rel=1e-8)  # sums of float32
    assert (found.pairs, found.words, found.kept) == (total.pairs, total.words, total.kept)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_words_of_a_topic_are_close(threads):
    rng = np.random.default_rng(2)
    lists = [rng.integers(0, 25, 40) + 25 * rng.integers(4) for _ in range(2500)]
    counts = np.bincount(np.concatenate(lists), minlength=100)
    rules, noise = Word2vecRules(seed=4), noise_of(counts)
    vectors = naive.start_rows(4, np.arange(100), 16), np.zeros((100, 16), np.float32)
    losses = [
        cpu.train(*vectors, sentences_of(lists, epoch=epoch), noise, rules, threads=threads)
        for epoch in range(3)
    ]
    assert losses[0].pairs > 2500 * 40 * 6 * 5
    assert losses[2].loss / losses[2].pairs < 0.99 * losses[0].loss / losses[0].pairs
    unit = vectors[0] / np.linalg.norm(vectors[0], axis=1, keepdims=True)
    close = unit @ unit.T
    topic = np.arange(100) // 25
    same = topic[:, None] == topic
    assert close[same].mean() > close[~same].mean() + 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_vectors_that_are_not_finite_make_the_loss_so(bad, which):
    noise, rules = noise_of(np.ones(5, np.int64)), Word2vecRules()
    block = sentences_of([[0, 1, 2, 3, 4] * 10])
    for train in (naive.train, cpu.train):
        vectors = vectors_of(5, 20)
        vectors[which][1:3, 17] = bad
        assert not np.isfinite(train(*vectors, block, noise, rules).loss)


@pytest.mark.parametrize("lists", [[], [[]], [[3]], [[-1, -1, 2, -1]], [[-1] * 500]])
def test_without_pairs_nothing_moves(lists):
    noise, rules = noise_of(np.ones(5, np.int64)), Word2vecRules()
    vectors, before = vectors_of(5, 20), vectors_of(5, 20)
    words = sum(word >= 0 for each in lists for word in each)
    for train in (naive.train, cpu.train):
        assert train(*vectors, sentences_of(lists), noise, rules) == Losses(words=words, kept=words)
        np.testing.assert_array_equal(vectors[0], before[0])
        np.testing.assert_array_equal(vectors[1], before[1])


# -- shards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "dimension", "count"), [(1, 1, 2), (40_000, 3, 2), (7, 128, 5)])
def test_shards_change_vectors_as_naive_ones_do(rows, dimension, count):
    random = np.random.default_rng(4)
    base, *copies = random.normal(size=(1 + count, rows, dimension)).astype(np.float32)
    pairs = random.random(rows).astype(np.float32)
    weights = random.random(rows).astype(np.float32)
    exchange = Exchange(count, 1000, 0.025)
    truth, ours = (
        [base.copy(), [copy.copy() for copy in copies], module] for module in (naive, cpu)
    )
    for each in (truth, ours):
        vectors, of_shards, module = each
        moved = module.changes(vectors, of_shards)
        square = module.mean_square(weights, vectors)
        module.apply_changes(vectors, of_shards, moved.copy(), pairs, square, exchange)
        each += [moved, square]
    np.testing.assert_array_equal(ours[3], truth[3])
    assert ours[4] == pytest.approx((weights[:, None] * base**2).sum(dtype=np.float64), rel=1e-5)
    assert ours[4] == truth[4]
    np.testing.assert_array_equal(ours[0], truth[0])
    for copy in ours[1]:
        np.testing.assert_array_equal(copy, ours[0])
    assert not np.array_equal(ours[0], base)
