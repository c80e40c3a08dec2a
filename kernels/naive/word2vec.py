"""Skip-gram with negative samples, the reference: sentence after sentence, window by window.

kernels/word2vec_rules.py defines draws and windows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive.philox import philox4x32, uniform
from penstock.kernels.streams import Stream
from penstock.kernels.word2vec_rules import (
    ALWAYS,
    FURTHEST,
    LEAST_WAY,
    MAX_SENTENCES,
    SENTENCE_BITS,
    Exchange,
    Losses,
    Noise,
    Sentences,
    Word2vecRules,
)

# -- preparation of training -----------------------------------------------------------------------


def start_rows(seed: int, words: Array, dimension: int) -> Array:
    """Return the initial input vectors of these words: (words, dimension) float32."""
    which, step = words.astype(np.uint64)[:, None], np.arange((dimension + 3) // 4)[None]
    drawn = np.stack(philox4x32(seed, Stream.WORD2VEC_INIT, which, step), axis=-1)
    columns = uniform(drawn).reshape(len(words), 4 * step.shape[1])[:, :dimension]
    rows: Array = (columns - np.float32(0.5)) / np.float32(dimension)
    return rows


def count_words(tokens: Array, counts: Array) -> None:
    """Add each word's occurrences in tokens to its count; negative numbers are skipped.

    tokens int32 of any shape, counts (V,) int64
    """
    np.add.at(counts, tokens[tokens >= 0], 1)


def noise_table(counts: Array) -> tuple[Array, Array]:
    """Return the alias table that draws words in proportion to ``counts**0.75``.

    counts (V,) int64, not all 0 -> chance (V,) uint32, alias (V,) int32: see Noise
    """
    root = np.sqrt(counts.astype(np.float64))
    share = root * np.sqrt(root)
    share *= len(counts) / share.sum()
    alias = np.arange(len(counts), dtype=np.int32)
    small, large = list(np.flatnonzero(share < 1)), list(np.flatnonzero(share >= 1))
    while small and large:
        taker, giver = small.pop(), large[-1]
        alias[taker] = giver
        share[giver] -= 1 - share[taker]
        if share[giver] < 1:
            small.append(large.pop())
    for slot in small:  # rounding remainders; a word without count is never drawn
        if counts[slot] == 0:
            alias[slot] = np.argmax(counts)
        else:
            share[slot] = 1
    chance = np.minimum(np.rint(share * 2.0**32), ALWAYS).astype(np.uint32)
    alias[chance == ALWAYS] = np.flatnonzero(chance == ALWAYS)
    return chance, alias


def keep_thresholds(counts: Array, sample: float) -> Array:
    """Return the thresholds of subsampling, ALWAYS for words that are always kept.

    A word with the share f of all words is kept with the chance ``sqrt(sample / f) + sample / f``.
    counts (V,) int64, sample above 0 -> (V,) uint32
    """
    expected = sample * counts.sum(dtype=np.float64) / np.maximum(counts, 1)
    chance = np.sqrt(expected) + expected
    thresholds: Array = np.minimum(np.rint(chance * 2.0**32), ALWAYS).astype(np.uint32)
    return thresholds


# -- training --------------------------------------------------------------------------------------


def kept_places(sentences: Sentences, number: int, noise: Noise, rules: Word2vecRules) -> Array:
    """Return the places of a sentence whose words are kept: (kept,) int64."""
    words = sentences.tokens[sentences.offsets[number] : sentences.offsets[number + 1]]
    places = np.flatnonzero(words >= 0)
    if noise.keep is None:
        return places
    which = _which(sentences, number)
    word, _, _, _ = philox4x32(rules.seed, Stream.WORD2VEC_SAMPLE, which, places)
    keep = noise.keep[words[places]]
    kept: Array = places[(word < keep) | (keep == ALWAYS)]
    return kept


def negatives(noise: Noise, rules: Word2vecRules, which: int, place: int) -> Array:
    """Return the negatives of the window with its centre at a place, including its own word."""
    place -= place % rules.shared_windows
    steps = place * rules.draws + np.arange(rules.draws)
    drawn = np.stack(philox4x32(rules.seed, Stream.WORD2VEC_NEGATIVE, which, steps), axis=1)
    if rules.pool == 0:
        return _words(noise, drawn)[: rules.negatives]
    halves = np.stack([drawn & 0xFFFF, drawn >> 16], axis=2).reshape(-1)[: rules.negatives]
    words: Array = pool(noise, rules, which)[halves.astype(np.int64) * rules.pool >> 16]
    return words


def pool(noise: Noise, rules: Word2vecRules, which: int) -> Array:
    """Return the words of the pool that a sentence draws from: (pool,) int64."""
    epoch, sentence = divmod(which, MAX_SENTENCES)
    number = sentence // rules.pool_sentences | epoch << SENTENCE_BITS
    steps = np.arange((rules.pool + 1) // 2)
    drawn = philox4x32(rules.seed, Stream.WORD2VEC_POOL, number, steps)
    return _words(noise, np.stack(drawn, axis=1))[: rules.pool]


def _words(noise: Noise, drawn: Array) -> Array:
    size, pairs = len(noise.chance), drawn.reshape(-1, 2)
    slots = (pairs[:, 0].astype(np.uint64) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
    return np.where(pairs[:, 1] < noise.chance[slots], slots, noise.alias[slots])


def train(
    vectors_in: Array, vectors_out: Array, sentences: Sentences, noise: Noise, rules: Word2vecRules
) -> Losses:
    """Train on a block of sentences, in place.

    vectors_in, vectors_out  (V, dimension) float32
    """
    total = Losses()
    for number in range(len(sentences.offsets) - 1):
        words = sentences.tokens[sentences.offsets[number] : sentences.offsets[number + 1]]
        places = kept_places(sentences, number, noise, rules)
        total += Losses(words=int((words >= 0).sum()), kept=len(places))
        for i, place in enumerate(places):
            near = np.r_[max(i - rules.half_window, 0) : i, i + 1 : i + 1 + rules.half_window]
            context = words[places[near[near < len(places)].astype(np.int64)]]
            drawn = negatives(noise, rules, _which(sentences, number), int(place))
            targets = np.r_[words[place], drawn[drawn != words[place]]].astype(np.int64)
            lr = sentences.lrs[number]
            total += _window(vectors_in, vectors_out, context, targets, lr)
    return total


def _window(
    vectors_in: Array, vectors_out: Array, context: Array, targets: Array, lr: np.float32
) -> Losses:
    x, y = vectors_in[context], vectors_out[targets]
    label = np.zeros(len(targets), np.float32)
    label[0] = 1
    with np.errstate(invalid="ignore", over="ignore"):  # vectors that grow without bound
        score = x @ y.T
        sigmoid = (np.tanh(score / 2) + 1) / 2
        gradient = (lr * (label - sigmoid)).astype(np.float32)
        np.add.at(vectors_in, context, gradient @ y)
        np.add.at(vectors_out, targets, gradient.T @ x)
        sign = np.where(label == 1, -1.0, 1.0)
        loss = np.logaddexp(0.0, sign * score.astype(np.float64)).sum()
    return Losses(loss=float(loss), pairs=score.size)


def _which(sentences: Sentences, number: int) -> int:
    return sentences.first + number | sentences.epoch << SENTENCE_BITS


# -- shards ----------------------------------------------------------------------------------------


def changes(base: Array, copies: Sequence[Array]) -> Array:
    """Return the sum of the changes of the copies of vectors: (rows, dimension) float32."""
    moved = copies[0] - base
    for copy in copies[1:]:
        moved += copy - base
    return moved


def mean_square(weights: Array, vectors: Array) -> np.float64:
    """Return the mean square of vectors, weighted by ``weights``: (rows,) float32."""
    return np.float64((weights * (vectors * vectors).sum(axis=1)).sum())


def apply_changes(
    base: Array,
    copies: Sequence[Array],
    moved: Array,
    pairs: Array,
    square: np.float64,
    exchange: Exchange,
) -> None:
    """Move vectors by a share of the shards' changes, and start the copies from there.

    moved   the changes of all shards; its content afterwards is undefined
    pairs   (rows,) float32: pairs per word of the corpus for each row
    square  of the other vectors: mean_square
    """
    count, dimension = exchange.count, base.shape[1]
    most = np.maximum(pairs * np.float32(exchange.steepest(square)), np.float32(LEAST_WAY))
    way = np.maximum(most / dimension, np.float32(LEAST_WAY))
    share = np.expm1(-count * way) / (count * np.expm1(-way))
    bound = (-FURTHEST / count) / np.expm1(-most)
    base += np.minimum(share, bound).reshape(-1, 1) * moved
    for copy in copies:
        copy[...] = base
