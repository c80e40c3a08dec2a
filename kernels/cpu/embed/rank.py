"""Ranks and best candidates: BLAS decides most, float64 the rest, in tiles of bounded memory.

A score in float32 has a bounded error. If it is further from the answer's score than that, it
decides the comparison; the few others are computed again.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import stride
from penstock.kernels.cpu.embed.matrices import compose
from penstock.kernels.cpu.embed.piece import distance_tile
from penstock.kernels.cpu.embed.rows import TRANSE_L1, TRANSE_L2, query_row
from penstock.kernels.cpu.embed.workspace import Workspace, entered
from penstock.kernels.cpu.search import lower_bound
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.embed_rules import EmbedRules, Known, Model, Side

__all__ = ["answer_scores", "count", "queries", "top"]

_QUERIES, _CANDIDATES = 128, 2048  # of a tile
_TOP_CANDIDATES = 1 << 16  # of a piece
_MATRICES = 64  # that are composed at a time
_LARGEST = 1e37  # larger products may not be float32


def queries(
    nodes: Array,
    relations: Array | None,
    given: Array,
    relation: Any,
    side: Side,
    rules: EmbedRules,
) -> Array:
    """Return the queries of a side: (n, dim) float32."""
    asked = np.empty((len(given), rules.dim), np.float32)
    given = np.asarray(given, np.int64)
    if relations is None:
        factors, rows = np.zeros((1, 0)), np.zeros(len(given), np.int64)
    else:
        rows = np.asarray(relation, np.int64)
        rows = rows + rules.inverse if side == Side.HEAD else rows
        factors = relations
    if relations is not None and rules.model == Model.TUCKER:
        return _queries_of_composed(nodes, relations, given, rows, side, rules)
    if relations is not None and rules.model != Model.RESCAL:
        # Only the needed rows: there may be many more relations.
        distinct, rows = np.unique(rows, return_inverse=True)
        factors = relations[distinct].astype(np.float64)
        if rules.model == Model.ROTATE:
            factors = np.concatenate([np.cos(factors), np.sin(factors)], axis=1)
    sign = -1.0 if side == Side.HEAD and not rules.inverse else 1.0
    _queries(int(rules.model), sign, nodes, factors, given, rows, asked)
    return asked


def _queries_of_composed(
    nodes: Array, relations: Array, given: Array, rows: Array, side: Side, rules: EmbedRules
) -> Array:
    asked = np.empty((len(given), rules.dim), np.float32)
    core = relations[len(relations) - rules.shared_rows :]
    sign = -1.0 if side == Side.HEAD and not rules.inverse else 1.0
    distinct, slots = np.unique(rows, return_inverse=True)
    for first in range(0, len(distinct), _MATRICES):
        of = np.flatnonzero((slots >= first) & (slots < first + _MATRICES))
        matrices = compose(relations, distinct[first : first + _MATRICES], core)
        found = np.empty((len(of), rules.dim), np.float32)
        _queries(int(rules.model), sign, nodes, matrices, given[of], slots[of] - first, found)
        asked[of] = found
    return asked


def answer_scores(asked: Array, answers: Array, rules: EmbedRules) -> Array:
    """Return the score of one candidate for each query: (n,) float64 of (n, dim) and (n, dim)."""
    scores = np.empty(len(asked), np.float64)
    _answer_scores(int(rules.model), asked, answers, scores)
    return scores


def count(
    asked: Array,
    scores: Array,
    answers: Array,
    table: Array,
    rules: EmbedRules,
    counts: Array,
    first: int = 0,
    known: Known | None = None,
    work: Any = None,
) -> None:
    """Add the numbers of candidates whose scores exceed and equal that of each query's answer."""
    asked = np.ascontiguousarray(asked, np.float32)
    answers = np.ascontiguousarray(answers, np.int64)
    indptr, indices = _known(known, len(asked))
    cuts = [*range(0, len(table), _CANDIDATES), len(table)]
    with entered(work) as threads:
        lengths = np.zeros(len(cuts) - 1)
        if not rules.is_distance:

            def measure(tile: int) -> None:
                lengths[tile] = _longest(table[cuts[tile] : cuts[tile + 1]])

            threads.each(measure, len(lengths))

        def block(number: int) -> None:
            rows = slice(number * _QUERIES, min((number + 1) * _QUERIES, len(asked)))
            for tile, (low, high) in enumerate(pairwise(cuts)):
                part = table[low:high]
                found = _tile(threads, asked[rows], part, rules)
                queries = found, asked[rows], scores[rows], answers[rows]
                candidates = part, first + low, lengths[tile]
                left_out = indptr[rows.start : rows.stop + 1], indices
                _count(int(rules.model), queries, candidates, left_out, counts[rows])

        with np.errstate(all="ignore"):
            threads.each(block, -(-len(asked) // _QUERIES))


def top(
    asked: Array,
    table: Array,
    rules: EmbedRules,
    k: int,
    first: int = 0,
    known: Known | None = None,
    best: tuple[Array, Array] | None = None,
    work: Any = None,
) -> tuple[Array, Array]:
    """Return the best k candidates of each query: scores (n, k) float64 and ids (n, k) int64."""
    asked = np.ascontiguousarray(asked, np.float32)
    indptr, indices = _known(known, len(asked))
    blocks = -(-len(asked) // _QUERIES)
    # One piece, unless more threads than blocks would have nothing to do.
    many = work is not None and work.threads > blocks
    cuts = [*range(0, len(table), _TOP_CANDIDATES if many else max(len(table), 1)), len(table)]
    pieces = len(cuts) - 1
    scores = np.full((pieces + 1, len(asked), k), -np.inf)
    ids = np.full((pieces + 1, len(asked), k), -1, np.int64)
    if best is not None:
        scores[0], ids[0] = best

    with entered(work) as threads, np.errstate(all="ignore"):

        def search(number: int) -> None:
            piece, block = number % pieces, number // pieces
            rows = slice(block * _QUERIES, min((block + 1) * _QUERIES, len(asked)))
            for low in range(cuts[piece], cuts[piece + 1], _CANDIDATES):
                part = table[low : min(low + _CANDIDATES, cuts[piece + 1])]
                queries = _tile(threads, asked[rows], part, rules), asked[rows]
                candidates = part, first + low, 0.0 if rules.is_distance else _longest(part)
                left_out = indptr[rows.start : rows.stop + 1], indices
                best_of = scores[piece + 1, rows], ids[piece + 1, rows]
                _top(int(rules.model), queries, candidates, left_out, best_of)

        threads.each(search, pieces * blocks)
    _merge(scores, ids)
    return scores[0], ids[0]


def _known(known: Known | None, rows: int) -> tuple[Array, Array]:
    if known is None:
        return np.zeros(rows + 1, np.int64), np.empty(0, np.int64)
    return np.asarray(known.indptr, np.int64), np.asarray(known.indices)


def _tile(work: Workspace, asked: Array, part: Array, rules: EmbedRules) -> Array:
    found = work.own("scores", (len(asked), len(part)))
    if rules.is_distance:
        distance_tile(int(rules.model), asked, 0, part, found)
    else:
        np.matmul(asked, part.T, out=found)
    return found


@njit(cache=True, nogil=True)
def _queries(
    model: int,
    sign: float,
    nodes: Array,
    factors: Array,
    given: Array,
    relations: Array,
    asked: Array,
) -> None:
    dim = asked.shape[1]
    x, q = np.empty(dim, np.float64), np.empty(dim, np.float64)
    for i in range(len(given)):
        for f in range(dim):
            x[f] = nodes[given[i], f]
        r = moved(pointer(factors), relations[i] * stride(factors))
        query_row(model, sign, pointer(x), r, pointer(q), dim)
        for f in range(dim):
            asked[i, f] = q[f]


@njit(cache=True, nogil=True)
def _longest(table: Array) -> float:
    longest = 0.0
    for i in range(table.shape[0]):
        total = 0.0
        for f in range(table.shape[1]):
            total += np.float64(table[i, f]) * np.float64(table[i, f])
        if total > longest:  # NaN is found again in the scores
            longest = total
    return math.sqrt(longest)


@njit(cache=True, error_model="numpy")
def _exact(model: int, q: Any, v: Any, dim: int) -> Any:
    """Return a score in float64, always summed in the same order."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    half = dim // 2
    if model < TRANSE_L1:
        for f in range(0, dim - 3, 4):
            a += np.float64(q[f]) * np.float64(v[f])
            b += np.float64(q[f + 1]) * np.float64(v[f + 1])
            c += np.float64(q[f + 2]) * np.float64(v[f + 2])
            d += np.float64(q[f + 3]) * np.float64(v[f + 3])
        for f in range(dim - dim % 4, dim):
            a += np.float64(q[f]) * np.float64(v[f])
        return (a + b) + (c + d)
    if model == TRANSE_L1:
        for f in range(dim):
            a += abs(np.float64(q[f]) - np.float64(v[f]))
        return -a
    if model == TRANSE_L2:
        for f in range(dim):
            a += (np.float64(q[f]) - np.float64(v[f])) ** 2
        return -math.sqrt(a)
    for f in range(half):
        real = np.float64(q[f]) - np.float64(v[f])
        imaginary = np.float64(q[half + f]) - np.float64(v[half + f])
        a += math.sqrt(real * real + imaginary * imaginary)
    return -a


@njit(cache=True, nogil=True)
def _answer_scores(model: int, asked: Array, answers: Array, scores: Array) -> None:
    for i in range(len(scores)):
        q = moved(pointer(asked), i * stride(asked))
        v = moved(pointer(answers), i * stride(answers))
        scores[i] = _exact(model, q, v, asked.shape[1])


@njit(cache=True, nogil=True, error_model="numpy")
def _count(model: int, queries: Any, candidates: Any, left_out: Any, counts: Array) -> None:
    found, asked, scores, answers = queries
    table, first, longest = candidates
    indptr, indices = left_out
    width, dim = found.shape[1], asked.shape[1]
    for i in range(found.shape[0]):
        q = moved(pointer(asked), i * dim)
        score = scores[i]
        bound = _error(model, q, dim, score, longest)
        row = moved(pointer(found), i * width)
        high, low = np.float32(score + bound), np.float32(score - bound)
        above, below = _certain(row, width, low, high)
        counts[i, 0] += above
        if above + below < width:
            for j in range(width):
                if not (row[j] > high or row[j] < low):
                    v = moved(pointer(table), j * stride(table))
                    order = _compare(_exact(model, q, v, dim), score)
                    counts[i, 0] += order > 0
                    counts[i, 1] += order == 0
        last = answers[i]
        if first <= last < first + width:
            _take_out(model, q, table, last - first, dim, score, counts, i)
        begin = lower_bound(indices, indptr[i], indptr[i + 1], first)
        previous = np.int64(-1)
        for e in range(begin, indptr[i + 1]):
            other = np.int64(indices[e])
            if other >= first + width:
                break
            if other != last and other != previous:
                _take_out(model, q, table, other - first, dim, score, counts, i)
            previous = other


@njit(cache=True)
def _certain(row: Any, width: Any, low: Any, high: Any) -> Any:
    above, below = np.int32(0), np.int32(0)
    for j in range(width):
        above += np.int32(row[j] > high)
        below += np.int32(row[j] < low)
    return np.int64(above), np.int64(below)


@njit(cache=True)
def _compare(mine: float, other: float) -> int:
    if mine != mine or other != other:
        return int(mine == mine) - int(other == other)
    return int(mine > other) - int(mine < other)


@njit(cache=True)
def _take_out(
    model: int, q: Any, table: Array, row: int, dim: int, score: float, counts: Array, i: int
) -> None:
    v = moved(pointer(table), row * stride(table))
    order = _compare(_exact(model, q, v, dim), score)
    counts[i, 0] -= order > 0
    counts[i, 1] -= order == 0


@njit(cache=True)
def _error(model: int, q: Any, dim: int, score: float, longest: float) -> float:
    """Return by how much a float32 score may be wrong, if it is compared with ``score``."""
    share = 2 * (dim + 8) * 2.0**-24
    bound = (share + 2.0**-22) * abs(score)
    if model < TRANSE_L1:
        length = 0.0
        for f in range(dim):
            length += np.float64(q[f]) * np.float64(q[f])
        product = math.sqrt(length) * longest
        bound = bound + share * product if product < _LARGEST else np.inf
    return bound


@njit(cache=True, nogil=True)
def _top(model: int, queries: Any, candidates: Any, left_out: Any, best: Any) -> None:
    """Insert a tile's candidates into the best so far; ``found`` has their float32 scores."""
    found, asked = queries
    table, first, longest = candidates
    indptr, indices = left_out
    scores, ids = best
    width, dim, k = found.shape[1], asked.shape[1], scores.shape[1]
    for i in range(found.shape[0]):
        q, row = moved(pointer(asked), i * dim), moved(pointer(found), i * width)
        end, least, low = indptr[i + 1], -np.inf, np.float32(-np.inf)
        for j in range(width):
            if row[j] < low:
                continue
            # The k-th best so far decides what can still be among them.
            if ids[i, k - 1] >= 0 and scores[i, k - 1] != least:
                least = scores[i, k - 1]
                low = np.float32(least - _error(model, q, dim, least, longest))
                if row[j] < low:
                    continue
            number = np.int64(first + j)
            at = lower_bound(indices, indptr[i], end, number)
            if at < end and indices[at] == number:
                continue
            score = _exact(model, q, moved(pointer(table), j * stride(table)), dim)
            if score == score:
                _insert(scores[i], ids[i], score, number)


@njit(cache=True)
def _insert(scores: Array, ids: Array, score: float, number: int) -> None:
    at = len(scores)
    while at > 0 and (
        ids[at - 1] < 0
        or score > scores[at - 1]
        or (score == scores[at - 1] and number < ids[at - 1])
    ):
        at -= 1
        if at + 1 < len(scores):
            scores[at + 1], ids[at + 1] = scores[at], ids[at]
        scores[at], ids[at] = score, number


@njit(cache=True, nogil=True)
def _merge(scores: Array, ids: Array) -> None:
    for piece in range(1, scores.shape[0]):
        for i in range(scores.shape[1]):
            for j in range(scores.shape[2]):
                if ids[piece, i, j] >= 0:
                    _insert(scores[0, i], ids[0, i], scores[piece, i, j], ids[piece, i, j])
