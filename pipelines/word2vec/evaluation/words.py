"""Vectors of words against judgements: similarities of pairs, and analogies, counted like gensim.

Lines with a word without a vector are left out and counted, and so are lines of another form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.kernels import kernel
from penstock.pipelines.vectors import Vectors

_CANDIDATES = 5  # nearest words; the first that is not a word of the question is the answer
_QUESTIONS, _PRODUCTS = 256, 32  # questions at a time by 3CosAdd, and by 3CosMul
_SHIFT = 1e-6  # of 3CosMul: avoids a division by zero
_DOUBLES = 1 << 16  # pairs of at most this many words are compared in float64
_WORD = 200  # bytes per word: its spelling, its rows, its length


class Words:
    """Rows of words by their spelling; without case, of several words the first counts.

    rows    by word; kinds: (rows,) int64, equal for words that differ only in case
    """

    def __init__(self, vectors: Vectors, *, case_sensitive: bool, restrict: int) -> None:
        self.vectors = vectors
        self.values = np.asarray(vectors.values[:restrict])
        self.case_sensitive = case_sensitive
        self.rows: dict[str, int] = {}
        self.kinds = np.empty(len(self.values), np.int64)
        for row, word in enumerate(vectors.ids[:restrict].to_pylist()):
            self.kinds[row] = self.rows.setdefault(self.folded(str(word)), row)
        lengths = kernel("neighbours", self.values).norms(self.values)
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        self.units = np.empty_like(self.values)  # in float64, rounded once, without a copy of it
        np.multiply(self.values, scale[:, None], out=self.units, casting="same_kind")

    def folded(self, word: str) -> str:
        """Return the key of a word: upper case, like gensim."""
        return word if self.case_sensitive else word.upper()

    def find(self, words: Sequence[str]) -> list[int | None]:
        """Return the rows of words; None for unknown words."""
        return [self.rows.get(self.folded(word)) for word in words]


def memory(rows: int, dimension: int, *, by_pairs: bool, by_analogies: bool) -> int:
    """Return the approximate bytes of a comparison with this many words."""
    doubles = 8 * dimension if by_pairs and rows < _DOUBLES else 0
    scores = 4 * 5 * _PRODUCTS if by_analogies else 0  # of all words, of 3CosMul
    return rows * (4 * dimension + _WORD + max(doubles, scores))


# -- pairs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairsResult:
    """The agreement of cosines with the judged order of pairs.

    used, unknown, skipped  numbers of lines: used, with an unknown word, of another form
    """

    file: str
    spearman: float | None
    pearson: float | None
    used: int
    unknown: int
    skipped: int


def evaluate_pairs(words: Words, path: Path) -> PairsResult:
    """Return the correlations of cosines with the judgements of a file."""
    judged, rows, unknown, skipped = [], [], 0, 0
    for line in _lines(path):
        if line.startswith("#"):
            continue
        parts = line.split()
        try:
            one, other, judgement = parts[0], parts[1], float(parts[2])
        except (IndexError, ValueError):
            judgement = math.nan
        if not math.isfinite(judgement):
            skipped += 1
            continue
        a, b = words.find([one, other])
        if a is None or b is None:
            unknown += 1
            continue
        judged.append(judgement)
        rows.append((a, b))
    form = "two words and a number"
    _need_some(path, len(judged), unknown, skipped, words.vectors, form)
    pairs = np.array(rows)
    units = words.units.astype(np.float64) if len(words.units) < _DOUBLES else words.units
    cosines = np.einsum("ij,ij->i", units[pairs[:, 0]], units[pairs[:, 1]], dtype=np.float64)
    truth = np.array(judged)
    return PairsResult(
        str(path),
        correlation(ranks(truth), ranks(cosines)),
        correlation(truth, cosines),
        len(judged),
        unknown,
        skipped,
    )


def ranks(values: Array) -> Array:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, of, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Array = (last - (counts - 1) / 2)[of]
    return shared


def correlation(one: Array, other: Array) -> float | None:
    """Return Pearson's correlation; None if either does not vary."""
    one, other = one - one.mean(), other - other.mean()
    lengths = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / lengths if lengths > 0 else None


# -- analogies -----------------------------------------------------------------------------------


@dataclass
class Section:
    """The questions of one section, and the number of right answers of each method."""

    name: str
    questions: list[tuple[int, int, int, int]] = field(default_factory=list)
    unknown: int = 0
    right_add: int = 0
    right_mul: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return counts and accuracies; None without questions."""
        count = len(self.questions)
        return {
            "section": self.name,
            "used": count,
            "unknown": self.unknown,
            "3cosadd": self.right_add / count if count else None,
            "3cosmul": self.right_mul / count if count else None,
        }


@dataclass(frozen=True)
class AnalogiesResult:
    """Accuracies by section and in total; ``skipped`` lines have another form."""

    file: str
    sections: list[Section]
    total: Section
    skipped: int

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "file": self.file,
            "sections": [section.to_dict() for section in self.sections],
            "total": self.total.to_dict(),
            "skipped": self.skipped,
        }


def evaluate_analogies(words: Words, path: Path) -> AnalogiesResult:
    """Answer the questions ``a is to b as c is to ?`` of a file, and return the accuracies."""
    sections: list[Section] = []
    skipped = 0
    for line in _lines(path):
        if line.startswith(":"):
            sections.append(Section(line.lstrip(": ").strip()))
            continue
        parts = line.split()
        if len(parts) != 4:
            skipped += 1
            continue
        if not sections:
            sections.append(Section(path.stem))
        a, b, c, d = words.find(parts)
        if a is None or b is None or c is None or d is None:
            sections[-1].unknown += 1
        else:
            sections[-1].questions.append((a, b, c, d))
    used = sum(len(section.questions) for section in sections)
    unknown = sum(section.unknown for section in sections)
    _need_some(path, used, unknown, skipped, words.vectors, "four words")
    total = Section("total", unknown=unknown)
    for section in sections:
        questions = np.array(section.questions, np.int64).reshape(-1, 4)
        for start in range(0, len(questions), _QUESTIONS):
            some = questions[start : start + _QUESTIONS]
            section.right_add += _right(words, some, _nearest_by_sum(words, some))
        for start in range(0, len(questions), _PRODUCTS):
            some = questions[start : start + _PRODUCTS]
            section.right_mul += _right(words, some, _nearest_by_product(words, some))
        total.questions += section.questions
        total.right_add += section.right_add
        total.right_mul += section.right_mul
    return AnalogiesResult(str(path), sections, total, skipped)


def _nearest_by_sum(words: Words, questions: Array) -> Array:
    """Return rows nearest to b - a + c, for vectors of length one: (questions, candidates)."""
    a, b, c = (words.units[questions[:, i]] for i in range(3))
    module = kernel("neighbours", words.units)
    k = min(_CANDIDATES, len(words.units))
    rows: Array = module.nearest(b - a + c, words.units, k, skip=questions[:, :3])[0]
    return rows


def _nearest_by_product(words: Words, questions: Array) -> Array:
    """Return rows with the largest cos(b) cos(c) / cos(a), cosines moved to [0, 1]."""
    asked = questions[:, :3]
    a, b, c = (words.units[asked[:, i]] @ words.units.T for i in range(3))
    for cosines in (a, b, c):
        cosines += 1
    scores = b
    scores *= c
    a += 2 * _SHIFT  # scaled, because the cosines are not halved
    scores /= a
    np.put_along_axis(scores, asked, -np.inf, axis=1)
    rows = np.full((len(questions), min(_CANDIDATES, scores.shape[1])), -1, np.int64)
    left = np.arange(len(questions))
    for place in range(rows.shape[1]):  # further ones only if the best is a word of the question
        rows[left, place] = best = np.argmax(scores[left], axis=1)
        scores[left, best] = -np.inf
        same = (words.kinds[best][:, None] == words.kinds[asked[left]]).any(axis=1)
        left = left[same]
        if not len(left):
            break
    return rows


def _right(words: Words, questions: Array, rows: Array) -> int:
    """Return the number of right answers: the first row that is not a word of the question."""
    kinds = np.where(rows >= 0, words.kinds[rows], -1)
    asked = words.kinds[questions[:, :3]]
    is_new = (kinds[:, :, None] != asked[:, None, :]).all(axis=2) & (rows >= 0)
    first = np.argmax(is_new, axis=1)
    lines = np.arange(len(questions))
    answered = is_new[lines, first] & (kinds[lines, first] == words.kinds[questions[:, 3]])
    return int(answered.sum())


# -- files ---------------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that are not empty."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if line.strip():
                    yield line.strip()
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}",
            expected="text in UTF-8",
            got=str(error),
            remedy="Unpack it, or convert it, as with iconv -f LATIN1 -t UTF-8",
        ) from error


def _need_some(
    path: Path, used: int, unknown: int, skipped: int, vectors: Vectors, form: str
) -> None:
    if not used:
        there = unknown or skipped
        raise InputError(
            f"{path} has no line{' whose words all have vectors' if there else ''}",
            expected=f"lines of {form}, with blanks between, words such as {vectors.example()}",
            got=f"{unknown:,} lines with other words, {skipped:,} of another form"
            if there
            else None,
        )
