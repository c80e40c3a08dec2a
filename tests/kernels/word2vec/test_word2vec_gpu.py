"""Training word vectors on a GPU: one team does what naive does, many have the same pairs."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import Exchange, Losses, Noise, Sentences, Word2vecRules

pytestmark = pytest.mark.gpu

LENGTHS = (40, 0, 1, 2, 33, 150, 64, 5)
CASES = [
    # dimension, words, half window, negatives, shared windows
    (1, 50, 3, 5, 1),
    (16, 50, 1, 1, 1),
    (33, 300, 2, 3, 4),
    (64, 3, 3, 5, 1),
    (100, 300, 3, 5, 1),
    (127, 300, 5, 5, 2),
    (128, 4, 3, 5, 2),
    (128, 300, 10, 20, 1),
    (128, 300, 3, 0, 1),
    (128, 300, 15, 31, 1),
    (200, 300, 5, 15, 4),
    (700, 100, 3, 10, 1),
    (1023, 100, 10, 5, 1),
]


def corpus(words, *, lengths=LENGTHS, lr=0.01):
    """Return sentences, some of whose places have no word, and counts of words."""
    random = np.random.default_rng(7)
    tokens = np.minimum(random.zipf(1.3, sum(lengths)) - 1, words - 1).astype(np.int32)
    tokens[random.random(len(tokens)) < 0.1] = -1
    offsets = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    lrs = np.linspace(lr, lr / 3, len(lengths)).astype(np.float32)
    counts = np.bincount(tokens[tokens >= 0], minlength=words) + 1
    return Sentences(tokens, offsets, lrs, first=12345678901, epoch=3), counts


def vectors(words, dimension):
    random = np.random.default_rng(8)
    both = random.normal(scale=1.5 / np.sqrt(dimension), size=(2, words, dimension))
    return both[0].astype(np.float32), both[1].astype(np.float32)


def on_gpu(sentences, noise):
    import cupy as cp

    def put(array):
        return None if array is None else cp.asarray(array)

    tokens, offsets, lrs = map(put, (sentences.tokens, sentences.offsets, sentences.lrs))
    moved = replace(sentences, tokens=tokens, offsets=offsets, lrs=lrs)
    return moved, Noise(*map(put, (noise.chance, noise.alias, noise.keep, noise.counts)))


def train(start, sentences, noise, rules, **options):
    """Train copies of these vectors on the GPU."""
    import cupy as cp

    from penstock.kernels.cuda import word2vec

    ours = cp.asarray(start[0]), cp.asarray(start[1])
    losses = word2vec.train(*ours, *on_gpu(sentences, noise), rules, **options)
    return losses, ours[0].get(), ours[1].get()


def agree(ours, truth):
    assert (ours.pairs, ours.words, ours.kept) == (truth.pairs, truth.words, truth.kept)
    assert ours.loss == pytest.approx(truth.loss, rel=1e-5)


@pytest.mark.parametrize("sample", [None, 1e-2])
@pytest.mark.parametrize(("dimension", "words", "half_window", "negatives", "shared"), CASES)
def test_one_team_trains_as_naive_does(dimension, words, half_window, negatives, shared, sample):
    sentences, counts = corpus(words)
    keep = None if sample is None else naive.keep_thresholds(counts, sample)
    noise = Noise(*naive.noise_table(counts), keep)
    rules = Word2vecRules(half_window, negatives, seed=-5, shared_windows=shared)
    start = vectors(words, dimension)
    truth = start[0].copy(), start[1].copy()
    expected = naive.train(*truth, sentences, noise, rules)
    losses, *ours = train(start, sentences, noise, rules, teams=1)
    agree(losses, expected)
    for got, wanted, before in zip(ours, truth, start, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)
        assert not np.array_equal(wanted, before)


@pytest.mark.parametrize("piece", [1, 7, 32, 100, None])
@pytest.mark.parametrize(("dimension", "teams"), [(32, None), (128, 3), (128, None), (300, None)])
def test_cut_sentences_have_the_same_pairs(dimension, teams, piece):
    sentences, counts = corpus(300, lengths=(900, 0, 3, 1200, 1, 1))
    sentences.tokens[200:500] = -1
    sentences = replace(sentences, lrs=np.zeros_like(sentences.lrs))
    noise = Noise(*naive.noise_table(counts), naive.keep_thresholds(counts, 1e-2))
    start = vectors(300, dimension)
    expected = naive.train(start[0].copy(), start[1].copy(), sentences, noise, Word2vecRules())
    losses, *ours = train(start, sentences, noise, Word2vecRules(), teams=teams, piece=piece)
    agree(losses, expected)
    for got, before in zip(ours, start, strict=True):
        np.testing.assert_array_equal(got, before)


@pytest.mark.parametrize("teams", [1, None])
def test_rows_are_sentences_of_one_length(teams):
    import cupy as cp

    from penstock.kernels.cuda import word2vec

    sentences, counts = corpus(300, lengths=(80,) * 50, lr=0.0 if teams is None else 0.01)
    noise, start = Noise(*naive.noise_table(counts)), vectors(300, 64)
    moved, noise_there = on_gpu(sentences, noise)
    rows = replace(moved, tokens=moved.tokens.reshape(50, 80), offsets=None)
    ours = cp.asarray(start[0]), cp.asarray(start[1])
    losses = word2vec.train(*ours, rows, noise_there, Word2vecRules(), teams=teams)
    expected, *wanted = train(start, sentences, noise, Word2vecRules(), teams=teams)
    agree(losses, expected)
    for got, one in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(got.get(), one)


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_many_teams_learn_as_one_does(shared):
    """Sentences of words of one group of 10 each: pairs of a group become likely."""
    random = np.random.default_rng(3)
    groups = random.integers(0, 100, 4000)
    tokens = (10 * groups[:, None] + random.integers(0, 10, (4000, 20))).astype(np.int32).ravel()
    offsets, lrs = np.arange(4001) * 20, np.full(4000, 0.05, np.float32)
    noise = Noise(*naive.noise_table(np.bincount(tokens, minlength=1000)))
    rules = Word2vecRules(shared_windows=shared)
    start = naive.start_rows(1, np.arange(1000), 64), np.zeros((1000, 64), np.float32)
    last = {}
    for teams in (1, 16):
        now = start
        for epoch in range(5):
            sentences = Sentences(tokens, offsets, lrs, epoch=epoch)
            losses, *trained = train(now, sentences, noise, rules, teams=teams)
            now = trained[0], trained[1]
        last[teams] = losses.loss / losses.pairs
    assert last[1] < 0.5 * np.log(2)
    assert last[16] == pytest.approx(last[1], rel=0.05)


@pytest.mark.parametrize("exponent", [None, 0.75, 0.5])
def test_words_of_many_teams_get_a_share_of_their_changes(exponent):
    import cupy as cp

    from penstock.kernels.cuda.word2vec.training import shares

    counts = np.array([10**6, 10**4, 10, 10])
    keep = naive.keep_thresholds(counts, 1e-2)
    power = exponent or 0.75  # None: counts are not given, and follow from the table
    told = None if exponent is None else counts / counts.sum()
    table = naive.noise_table(counts ** (power / 0.75))
    _, noise = on_gpu(corpus(4)[0], Noise(*table, keep, told))
    lrs = cp.full(3, 0.02, cp.float32)
    into, out = (each.get() for each in shares(noise, lrs, Word2vecRules(3, 5), 1000))
    drawn = counts**power / (counts**power).sum()
    kept = counts * (keep / 2**32)
    kept /= kept.sum()
    np.testing.assert_allclose(into, np.minimum(1, 20 / (7000 * kept)), rtol=1e-3)
    np.testing.assert_allclose(out, np.minimum(1, 20 / (1000 * (5 * drawn + kept))), rtol=1e-3)
    assert into[0] < 0.01
    assert into[3] == out[3] == 1
    for each in shares(noise, lrs, Word2vecRules(3, 5), 1):
        assert each.min() == 1


def test_start_rows_and_tables_are_those_of_naive():
    import cupy as cp

    from penstock.kernels.cuda import word2vec

    words = np.array([0, 5, 2**40, 3])
    for dimension in (1, 3, 4, 100, 129):
        rows = word2vec.start_rows(-9, cp.asarray(words), dimension).get()
        np.testing.assert_array_equal(rows, naive.start_rows(-9, words, dimension))
    counts = np.random.default_rng(2).integers(1, 1000, 77)
    tokens = np.random.default_rng(3).integers(-1, 70, (999, 80)).astype(np.int32)
    ours, wanted = cp.asarray(counts), counts.copy()
    word2vec.count_words(cp.asarray(tokens), ours)
    naive.count_words(tokens, wanted)
    np.testing.assert_array_equal(ours.get(), wanted)
    keep = word2vec.keep_thresholds(cp.asarray(counts), 1e-2)
    np.testing.assert_array_equal(keep.get(), naive.keep_thresholds(counts, 1e-2))


def test_noise_is_drawn_as_by_naive():
    from penstock.kernels.cuda import word2vec

    counts = np.random.default_rng(0).zipf(1.3, 50_000) % 10**7
    for ours, true in zip(word2vec.noise_table(counts), naive.noise_table(counts), strict=True):
        assert ours.dtype == true.dtype
        np.testing.assert_array_equal(ours.get(), true)


def test_nothing_to_train_on():
    sentences, counts = corpus(300, lengths=(0, 0))
    noise, start = Noise(*naive.noise_table(counts)), vectors(300, 8)
    losses, *ours = train(start, sentences, noise, Word2vecRules())
    assert losses == Losses()
    np.testing.assert_array_equal(ours[0], start[0])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dimension", [1, 7, 100, 128, 300])
def test_shards_change_vectors_as_naive_ones_do(dimension, count):
    import cupy as cp

    from penstock.kernels.cuda import word2vec

    rows, random = 5000, np.random.default_rng(4)
    base, *copies = random.normal(size=(1 + count, rows, dimension)).astype(np.float32)
    pairs = random.random(rows).astype(np.float32)
    weights = random.random(rows).astype(np.float32) / rows
    exchange = Exchange(2, 3000, 0.025)
    # Rows of a table, which begin where vectors of four values cannot be loaded.
    first = 3
    tables = [
        cp.asarray(np.concatenate([np.zeros((first, dimension)), table]), cp.float32)
        for table in (base, *copies)
    ]
    there, *others = [table[first:] for table in tables]
    moved = word2vec.changes(there, others)
    wanted = naive.changes(base, copies)
    np.testing.assert_allclose(moved.get(), wanted, rtol=1e-5, atol=1e-5)
    square = word2vec.mean_square(cp.asarray(weights), there)
    truth = naive.mean_square(weights, base)
    assert float(square) == pytest.approx(float(truth), rel=1e-5)
    word2vec.apply_changes(there, others, moved, cp.asarray(pairs), square, exchange)
    naive.apply_changes(base, copies, wanted, pairs, truth, exchange)
    np.testing.assert_allclose(there.get(), base, rtol=1e-4, atol=1e-4)
    for other in others:
        np.testing.assert_array_equal(other.get(), there.get())
    for table in tables:
        assert not table[:first].any()


def test_blocks_are_launched_before_the_losses_of_one_are_read():
    import cupy as cp

    from penstock.kernels.cuda import word2vec

    sentences, counts = corpus(300, lengths=(900, 0, 3, 1200))
    noise, start = Noise(*naive.noise_table(counts)), vectors(300, 64)
    block, there = on_gpu(sentences, noise)
    ours, in_turn = ([cp.asarray(table) for table in start] for _ in range(2))
    begun = [word2vec.begin(*ours, block, there, Word2vecRules(), teams=1) for _ in range(3)]
    found = [losses() for losses in begun]
    assert found == [
        word2vec.train(*in_turn, block, there, Word2vecRules(), teams=1) for _ in range(3)
    ]
    assert found[0].loss != found[1].loss
    for one, other in zip(ours, in_turn, strict=True):
        np.testing.assert_array_equal(one.get(), other.get())
    nothing = replace(block, tokens=block.tokens[:0], lrs=block.lrs[:0])
    assert word2vec.begin(*ours, nothing, there, Word2vecRules())() == Losses()
