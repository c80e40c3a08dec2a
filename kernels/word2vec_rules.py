"""The meaning of skip-gram training with negative samples, for all three backends.

Sentence s of a block is number ``first + s`` of its epoch; all its draws have
``which = first + s | epoch << 40``, like a walk's. ``t`` is a position in the original sentence,
before words are dropped.

**Subsampling.** The word at t is kept if word 0 of the draw (WORD2VEC_SAMPLE, which, step = t) is
below its threshold, or the threshold is ALWAYS. Negative numbers are never kept and cost no draw.
The kept words form the sentence, in order.

**A window** exists at each kept word, its centre. Its context is the kept words at most
``half_window`` places away, without the centre's own place (the window has the same width at every
centre, not a drawn one). It has K = ``negatives`` draws of negatives, shared by the whole context:
negative k of the centre at t has words 0, 1 (k even) or 2, 3 (k odd) of the draw
(WORD2VEC_NEGATIVE, which, step = t * ceil(K / 2) + k // 2): with a the first, b the second of the
two, ``slot = a * V >> 32``, and the negative is ``slot`` if ``b < chance[slot]``, else
``alias[slot]``. One that equals the centre is left out. A window without context does nothing.
With G = ``shared_windows`` above 1, windows share more: t is rounded down to a multiple of G, for
this draw only.

**Pools.** With P = ``pool`` above 0 negatives are words of a pool, P draws of negatives that many
windows share, so that a few vectors are read again and again. ``pool_sentences`` = n consecutive
sentences share one: sentence ``first + s`` is of pool ``(first + s) // n``. Word j of a
pool is drawn like a negative without pools, from words 0, 1 (j even) or 2, 3 (j odd) of the draw
(WORD2VEC_POOL, which = the pool's number | epoch << 40, step = j // 2). Negative k of the centre at
t then is word ``h * P >> 16`` of the pool, h the lower (k even) or upper half of word k % 8 // 2 of
the draw (WORD2VEC_NEGATIVE, which, step = t * ceil(K / 8) + k // 8); with ``shared_windows`` t is
rounded as before. A GPU has no pools.

**A step.** X are the input vectors of the context, one row per place (a word at two places has
two), Y the output vectors of the centre, label 1, and the negatives, label 0, all as before the
window. ``S = X Y^T``, ``G = lr * (label - sigmoid(S))``; ``G Y`` is added to the input vectors and
``G^T X`` to the output vectors; a word with several rows gets their sum. Windows follow one another
in order. Backends whose threads share vectors may see older rows.

**The loss** is the sum over pairs (x, y) of -log sigmoid(S) for label 1, -log sigmoid(-S) for 0,
with vectors as before the window. NaN vectors make it NaN, and infinite ones may.

Philox's ``step`` has 32 bits: a sentence of more than ``Word2vecRules.places`` words (1.4e9 if K is
5) repeats its first draws.

**Shards** train copies of the vectors, and then combine them. A row of the vectors moves by a share
of the sum of the shards' changes, which follows from the number of pairs that contributed
(``apply_changes``; workers/word2vec/deltas.py explains it).

**The start.** Column c of word w's input vector is ``(uniform - 0.5) / dimension`` of word c % 4 of
the draw (WORD2VEC_INIT, which = w, step = c // 4). Output vectors are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.arrays import AnyArray, OptionalArray

SENTENCE_BITS = 40  # of ``which``; the rest is the epoch
MAX_SENTENCES = 1 << SENTENCE_BITS
MAX_EPOCHS = 1 << (64 - SENTENCE_BITS)
MAX_WORDS = (1 << 31) - 1  # of a vocabulary: words are int32
MAX_DIMENSION = 1024
MAX_POOL = 1 << 16  # words; 16 bits choose one of them
ALWAYS = 2**32 - 1  # as a threshold: the word is kept

# Factor of the square of the other rows: a sigmoid's slope is at most 1/4.
CURVATURE = 0.25
# How far a row may move, relative to its optimum; beyond 2 every exchange would diverge.
FURTHEST = 1.8
LEAST_WAY = 1e-6


@dataclass(frozen=True, eq=False)
class Sentences:
    """A block of a corpus, as arrays of one backend.

    tokens   (n,) int32: numbers of words; negative ones are dropped (words outside the vocabulary,
             places beyond a walk's end)
    offsets  (sentences + 1,) int64 into tokens; on a GPU also None: tokens are (sentences, length),
             one sentence per row, such as walks
    lrs      (sentences,) float32: the learning rate of each sentence
    first    the number of the first sentence in the epoch, below MAX_SENTENCES
    epoch    from 0, below MAX_EPOCHS
    """

    tokens: AnyArray
    offsets: OptionalArray
    lrs: AnyArray
    first: int = 0
    epoch: int = 0


@dataclass(frozen=True, eq=False)
class Noise:
    """Tables for draws from a vocabulary of V words, as arrays of one backend.

    chance  (V,) uint32: the share of a slot for its own word, in 2**-32
    alias   (V,) int32: the word with the rest of the slot
    keep    (V,) uint32: thresholds of subsampling, or None: every word is kept
    counts  (V,) float32: this word's share of all words of the corpus, before subsampling; None if
            unknown. It decides no draw
    """

    chance: AnyArray
    alias: AnyArray
    keep: OptionalArray = None
    counts: OptionalArray = None


@dataclass(frozen=True)
class Word2vecRules:
    """The parameters of a window.

    half_window     places to each side of the centre, at least 1
    negatives       draws of negatives in a window, at least 0
    shared_windows  consecutive places whose windows share the same draws, at least 1
    pool            number of words that negatives are drawn from, at most MAX_POOL; 0: all
    pool_sentences  consecutive sentences that share a pool, at least 1
    """

    half_window: int = 3
    negatives: int = 5
    seed: int = 0
    shared_windows: int = 1
    pool: int = 0
    pool_sentences: int = 1

    @property
    def draws(self) -> int:
        """Draws of Philox per window."""
        a_draw = 8 if self.pool else 2
        return -(-self.negatives // a_draw)

    @property
    def places(self) -> int:
        """Words of a sentence before the draws of its negatives repeat."""
        return 2**32 // max(self.draws, 1)


@dataclass(frozen=True)
class Losses:
    """The result of training on a block.

    loss   the sum over all pairs
    pairs  number of pairs
    words  numbers of words in the block, before subsampling
    kept   after it
    """

    loss: float = 0.0
    pairs: int = 0
    words: int = 0
    kept: int = 0

    def __add__(self, other: Losses) -> Losses:
        """Return the sum of both blocks."""
        return Losses(
            self.loss + other.loss,
            self.pairs + other.pairs,
            self.words + other.words,
            self.kept + other.kept,
        )


@dataclass(frozen=True)
class Exchange:
    """The training between two exchanges of shards.

    count  number of shards
    words  number of words of the corpus that all of them trained
    lr     their learning rate
    """

    count: int
    words: int
    lr: float

    def steepest(self, square: Any) -> Any:
        """Return ``lr`` of a pair times its curvature in one direction, of a shard's words."""
        return CURVATURE * square * self.lr * self.words / self.count
