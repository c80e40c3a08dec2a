"""Nearest neighbours among vectors: matrix products of blocks, then exact scores of doubtful rows.

A product in float32 of unit vectors bounds a score. Only rows that may be among the nearest by that
bound are scored again, in float64 and always in the same order: so neither block sizes nor BLAS
decide which of two equal rows is first.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit

_QUERIES = 256  # scored together
_ROWS = 1 << 14  # rows whose lengths are computed together
SCORES = 1 << 20  # of a block, which stays in cache during the search


def nearest(
    queries: Array,
    vectors: Array,
    k: int,
    *,
    cosine: bool = True,
    skip: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Array, Array]:
    """Return the rows of ``vectors`` nearest to each query, and scores, as the naive twin does.

    lengths  the result of ``norms(vectors)``, if known
    """
    vectors = np.asarray(vectors)  # also mapped ones
    lengths = norms(vectors) if lengths is None else lengths
    skip = np.full((len(queries), 1), -1, np.int64) if skip is None else skip
    skip = np.sort(np.asarray(skip, np.int64), axis=1)
    rows = np.full((len(queries), k), -1, np.int64)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    if not k or not len(vectors):
        return rows, scores
    # Two roundings of a unit vector, those of the product, and those of the score.
    bound = (vectors.shape[1] + 8) * 2.0**-24
    step = max(1, SCORES // max(1, min(len(queries), _QUERIES)))
    for start in range(0, len(queries), _QUERIES):
        cut = slice(start, start + _QUERIES)
        some = np.array(queries[cut])
        their_lengths = norms(some)
        units = np.empty_like(some)
        _to_unit(some, their_lengths, units)
        found = np.zeros(len(some), np.int64)
        for first in range(0, len(vectors), step):
            block = np.array(vectors[first : first + step])
            unit_block = np.empty_like(block)
            _to_unit(block, lengths[first : first + step], unit_block)
            _search(
                units @ unit_block.T,
                some,
                their_lengths,
                block,
                lengths[first : first + step],
                first,
                cosine,
                bound,
                skip[cut],
                rows[cut],
                scores[cut],
                found,
            )
    return rows, scores


def norms(vectors: Array) -> Array:
    """Return the length of each vector: (rows,) float64."""
    lengths = np.empty(len(vectors), np.float64)
    for first in range(0, len(vectors), _ROWS):
        _norms(np.array(vectors[first : first + _ROWS]), lengths[first : first + _ROWS])
    return lengths


@njit(cache=True, nogil=True)
def _norms(vectors: Array, lengths: Array) -> None:
    for row in range(len(vectors)):
        lengths[row] = np.sqrt(_dot(vectors[row], vectors[row]))


@njit(cache=True)
def _dot(one: Array, other: Array) -> float:
    """Return the dot product in float64, in an order that depends on the width alone."""
    a = b = c = d = 0.0
    whole = len(one) // 4 * 4
    for i in range(0, whole, 4):
        a += np.float64(one[i]) * np.float64(other[i])
        b += np.float64(one[i + 1]) * np.float64(other[i + 1])
        c += np.float64(one[i + 2]) * np.float64(other[i + 2])
        d += np.float64(one[i + 3]) * np.float64(other[i + 3])
    for i in range(whole, len(one)):
        a += np.float64(one[i]) * np.float64(other[i])
    return (a + b) + (c + d)


@njit(cache=True, nogil=True)
def _to_unit(vectors: Array, lengths: Array, units: Array) -> None:
    for row in range(len(vectors)):
        scale = 1.0 / lengths[row] if lengths[row] > 0 else 0.0
        for column in range(vectors.shape[1]):
            units[row, column] = np.float32(vectors[row, column] * scale)


@njit(cache=True, nogil=True)
def _search(
    estimates: Array,
    queries: Array,
    query_lengths: Array,
    block: Array,
    lengths: Array,
    first: int,
    cosine: bool,
    bound: float,
    skip: Array,
    rows: Array,
    scores: Array,
    found: Array,
) -> None:
    """Merge a block into the nearest so far, which are sorted.

    estimates  (queries, rows of the block) cosines of float32, each off by at most ``bound``
    first      the first row of the block; found: the number of rows of each query so far
    """
    k = rows.shape[1]
    for query in range(len(queries)):
        count = found[query]
        for at in range(len(block)):
            length = 1.0 if cosine else query_lengths[query] * lengths[at]
            if count == k and (estimates[query, at] + bound) * length < scores[query, k - 1]:
                continue
            if _contains(skip[query], first + at):
                continue
            exact = _dot(queries[query], block[at])
            if cosine:
                product = query_lengths[query] * lengths[at]
                exact = exact / product if product > 0 else 0.0
            score = np.float32(exact)
            if count == k and not score > scores[query, k - 1]:
                continue
            place = min(count, k - 1)  # drops the last one if full
            while place > 0 and scores[query, place - 1] < score:
                scores[query, place] = scores[query, place - 1]
                rows[query, place] = rows[query, place - 1]
                place -= 1
            scores[query, place], rows[query, place] = score, first + at
            count = min(count + 1, k)
        found[query] = count


@njit(cache=True)
def _contains(values: Array, one: int) -> bool:
    for value in values:
        if value >= one:
            return bool(value == one)
    return False
