"""The corpus of a rank: the sentences of an epoch, read range by range.

Sentences are numbered: sentence s of an epoch is the same on every rank, and so is the position of
its first word. Two kinds have the same interface:

EncodedCorpus  numbers of words on disk, made once from text, lists or walks; may exceed memory
WalkCorpus     walks of a graph, which are walked when they are read, and never written
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.files import FileEntry, save_json, save_npy
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.kernels.walk_rules import WalkGraph, WalkRules
from penstock.workers.resources.device import arrays_of_device, gpu, to_device, to_host
from penstock.workers.walk.held import held_rows, walk_on_threads
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.starts import Starts

# Share of the memory besides vectors that a corpus kept on a GPU may use.
_RESIDENT_SHARE = 0.5
# Words of the walks that count nodes, if the first walks of all starts have fewer. With one walk of
# 80 from every node of an R-MAT graph, the total variation of negatives is off by 3 %, and rarely
# visited nodes by 40 %; with ten walks by 1 and 10 %. A GPU walks about 20 times as fast as it
# trains; CPUs, about four times as fast for node2vec, keep these walks.
COUNTED_WORDS = 1 << 24
_VISITS_WORDS, _VISITS_WORDS_GPU = 1 << 22, 1 << 25  # walks at a time

S = TypeVar("S", int, Array)  # one sentence, or several
Tokens = tuple[AnyArray, AnyArray | None]  # tokens and offsets of Sentences


class Corpus(ABC):
    """The sentences of every epoch.

    sentences  of an epoch; words: positions in them, negative numbers included
    """

    sentences: int
    words: int

    @abstractmethod
    def before(self, sentences: S) -> S:
        """Return the number of words of the epoch before each of these sentences."""

    @abstractmethod
    def sentence_at(self, word: int) -> int:
        """Return the first sentence that begins at or after this word of the epoch."""

    @abstractmethod
    def read(self, epoch: int, first: int, last: int) -> Tokens:
        """Return the tokens and offsets of the sentences ``first .. last``."""

    def hold(self, needed: int) -> bool:
        """Keep the corpus on a GPU if ``needed`` bytes fit as well; return whether it does."""
        return False

    def cut(self, first: int, words: int) -> int:
        """Return the end of a range of sentences that begins at ``first`` and has this many words.

        It has at least one sentence, and more words only if that sentence has.
        """
        start = self.before(first)
        last = self.sentence_at(start + words)
        if self.before(last) > start + words:
            last -= 1
        return min(max(last, first + 1), self.sentences)

    def even_cut(self, first: int, words: int) -> int:
        """Return the end of the range that begins at ``first``, in an epoch cut into equal ranges.

        There are as few ranges as possible with at most about ``words`` words each.
        """
        count = max(1, -(-self.words // words))
        number, end = self.before(first) * count // max(self.words, 1), first
        while end <= first:
            number += 1
            end = self.sentence_at(self.words * number // count)
        return end

    def pieces(self, first: int, last: int, words: int) -> Iterator[tuple[int, int]]:
        """Cut a range of sentences into ranges of this many words."""
        while first < last:
            end = min(self.cut(first, words), last)
            yield first, end
            first = end

    def shares(self, first: int, last: int, count: int) -> list[int]:
        """Return the cuts of a range of sentences into parts with about equal words."""
        start = self.before(first)
        words = self.before(last) - start
        places = [self.sentence_at(start + words * i // count) for i in range(1, count)]
        return [first, *(min(max(place, first), last) for place in places), last]


# -- walks of a graph ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphWalks:
    """A corpus of walks, as it is sent to ranks.

    walks  per start and epoch; same: every epoch has the walks of the first
    """

    graph: Path
    version: str
    spec: WalkGraphSpec
    starts: Starts
    walks: int
    same: bool = False

    @contextmanager
    def open(self, threads: int) -> Iterator[Corpus]:
        """Yield the corpus; the rows of the graph are held meanwhile."""
        with held_rows(self.graph, self.version, self.spec) as rows:
            yield WalkCorpus(rows, self.spec.rules, self.starts, self.walks, self.same, threads)


class WalkCorpus(Corpus):
    """Walks as sentences of equal length: negative numbers follow a walk's end.

    Walk w of epoch e is walk ``e * sentences + w`` of the seed: ``penstock walk`` with more
    ``--walks`` would write the walks of all epochs.
    """

    def __init__(
        self,
        rows: WalkGraph,
        rules: WalkRules,
        starts: Starts,
        walks: int,
        same: bool,
        threads: int,
    ) -> None:
        self.rows, self.rules, self.starts, self.same = rows, rules, starts, same
        self.sentences = starts.count * walks
        each = max(1, min(walks, COUNTED_WORDS // max(starts.count * rules.length, 1)))
        self.counted = starts.count * each  # first walks of an epoch, which count nodes
        self.words = self.sentences * rules.length
        self.threads = threads
        # Counted walks of the first epoch, from number kept_from.
        self.kept: Array | None = None
        self.kept_from = 0

    def before(self, sentences: S) -> S:
        """Return the number of words before sentences, as if no walk ended early."""
        return sentences * self.rules.length

    def sentence_at(self, word: int) -> int:
        """Return the first sentence that begins at or after this word."""
        return min(-(-word // self.rules.length), self.sentences)

    def read(self, epoch: int, first: int, last: int) -> Tokens:
        """Walk, on the device of the rows."""
        shift = 0 if self.same else epoch * self.sentences
        arrays, length = arrays_of_device(), self.rules.length
        starts = self.starts.of(first, last, arrays)
        numbers = arrays.asarray(self.starts.numbers(first + shift, last + shift))
        if gpu():  # training reads rows unchanged
            walk = kernel("walk", self.rows.indptr).walk
            paths = walk(self.rows, self.rules, numbers, starts)
            return paths.astype(np.int32, copy=False), None
        offsets = np.arange(last - first + 1, dtype=np.int64) * length
        paths = np.empty((last - first, length), np.int32)
        begin, end = self._take_kept(epoch, first, last, paths)
        some = slice(begin, end)
        given = numbers[some], starts[some], paths[some]
        walk_on_threads(self.rows, self.rules, *given, threads=self.threads)
        return paths.reshape(-1), offsets

    def _take_kept(self, epoch: int, first: int, last: int, paths: Array) -> tuple[int, int]:
        """Copy kept walks; return the range of ``first .. last`` that remains to be walked."""
        kept = self.kept
        if kept is None:
            return 0, last - first
        if epoch > 0 and not self.same:
            self.kept = None  # they are not read again
            return 0, last - first
        low = min(max(self.kept_from, first), last)
        high = max(min(self.kept_from + len(kept), last), low)
        if low > first and high < last:  # the rest would be two ranges
            return 0, last - first
        paths[low - first : high - first] = kept[low - self.kept_from : high - self.kept_from]
        return (0, low - first) if high == last else (high - first, last - first)

    def visits(self, nodes: int, first: int, last: int) -> AnyArray:
        """Return the visits of the first epoch's walks to each node, as int64."""
        arrays = arrays_of_device()
        counts = arrays.zeros(nodes, np.int64)
        module = kernel("word2vec", counts)
        few = (last - first) * self.rules.length <= COUNTED_WORDS
        kept = np.empty((last - first, self.rules.length), np.int32) if few and not gpu() else None
        at_once = max(_VISITS_WORDS_GPU if gpu() else _VISITS_WORDS, nodes)
        for begin, end in self.pieces(first, last, at_once):
            tokens, _ = self.read(0, begin, end)
            module.count_words(tokens, counts)
            if kept is not None:
                kept[begin - first : end - first] = tokens.reshape(end - begin, -1)
        self.kept, self.kept_from = kept, first
        return to_host(counts)


# -- what is encoded on disk -----------------------------------------------------------------------


@dataclass(frozen=True)
class EncodedPiece:
    """A part of an encoded corpus: its numbers of sentences and words."""

    name: str
    sentences: int
    words: int

    def save(self, folder: Path, tokens: Array, offsets: Array) -> list[FileEntry]:
        """Write the piece: tokens (words,) int32 and offsets (sentences + 1,) int64."""
        assert tokens.dtype == np.int32
        assert offsets.dtype == np.int64
        assert offsets[-1] == len(tokens) == self.words
        return [
            save_npy(folder, f"{self.name}.tokens.npy", tokens),
            save_npy(folder, f"{self.name}.offsets.npy", offsets),
        ]


@dataclass(frozen=True)
class Encoded:
    """A corpus of numbers of words in the files of a folder, as it is sent to ranks."""

    folder: Path

    def save(self, pieces: list[EncodedPiece]) -> None:
        """Write the list of pieces; do this last."""
        rows = [[piece.name, piece.sentences, piece.words] for piece in pieces]
        save_json(self.folder / "corpus.json", {"pieces": rows})

    @property
    def pieces(self) -> list[EncodedPiece]:
        """The pieces, in order."""
        body = json.loads((self.folder / "corpus.json").read_bytes())
        return [EncodedPiece(*row) for row in body["pieces"]]

    @contextmanager
    def open(self, threads: int) -> Iterator[Corpus]:
        """Yield the corpus."""
        yield EncodedCorpus(self.folder, self.pieces)


class EncodedCorpus(Corpus):
    """Mapped pieces on disk; reading copies them."""

    def __init__(self, folder: Path, pieces: list[EncodedPiece]) -> None:
        self._tokens = [load_npy(folder / f"{piece.name}.tokens.npy") for piece in pieces]
        self._offsets = [load_npy(folder / f"{piece.name}.offsets.npy") for piece in pieces]
        self._sentences = np.cumsum([0, *(piece.sentences for piece in pieces)]).tolist()
        self._words = np.cumsum([0, *(piece.words for piece in pieces)]).tolist()
        self.sentences, self.words = self._sentences[-1], self._words[-1]
        self._resident: AnyArray | None = None

    def before(self, sentences: S) -> S:
        """Return the number of words before sentences."""
        if isinstance(sentences, np.ndarray):
            return self._before(sentences)
        return int(self._before(np.array([sentences]))[0])

    def _before(self, sentences: Array) -> Array:
        pieces = np.searchsorted(self._sentences, sentences, side="right") - 1
        found = np.empty(len(sentences), np.int64)
        for piece in np.unique(pieces):
            of = pieces == piece
            if piece == len(self._offsets):  # the end
                found[of] = self.words
                continue
            inside = sentences[of] - self._sentences[piece]
            found[of] = self._words[piece] + self._offsets[piece][inside]
        return found

    def sentence_at(self, word: int) -> int:
        """Return the first sentence that begins at or after this word."""
        if word >= self.words:
            return self.sentences
        piece = bisect_right(self._words, word) - 1
        inside = np.searchsorted(self._offsets[piece], word - self._words[piece])
        return int(self._sentences[piece] + inside)

    def read(self, epoch: int, first: int, last: int) -> Tokens:
        """Return a range of sentences, the same in every epoch."""
        start = self.before(first)
        offsets = np.append(self.before(np.arange(first, last)), self.before(last)) - start
        if self._resident is not None:
            return self._resident[start : start + int(offsets[-1])], to_device(offsets)
        tokens = np.empty(int(offsets[-1]), np.int32)
        self._copy(start, tokens)
        if gpu():
            return to_device(tokens), to_device(offsets)
        return tokens, offsets

    def _copy(self, start: int, into: Array) -> None:
        done = 0
        while done < len(into):
            piece = bisect_right(self._words, start + done) - 1
            inside = start + done - self._words[piece]
            part = self._tokens[piece][inside : inside + len(into) - done]
            into[done : done + len(part)] = part
            done += len(part)

    def hold(self, needed: int) -> bool:
        """Keep all tokens on a GPU, if they fit there besides the training."""
        if not gpu():
            return False
        import cupy

        free = cupy.cuda.runtime.memGetInfo()[0] - needed
        if 4 * self.words > _RESIDENT_SHARE * free:
            return False
        tokens = cupy.empty(self.words, cupy.int32)
        for part, first in zip(self._tokens, self._words, strict=False):
            tokens[first : first + len(part)] = to_device(np.asarray(part))
        self._resident = tokens
        return True
