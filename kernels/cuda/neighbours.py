"""Nearest neighbours among vectors on a GPU: products by cuBLAS, then exact scores.

As on the CPU, a product in float32 of unit vectors bounds a score, and rows that may be among the
nearest by that bound are scored again in float64.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch, launch_blocks
from penstock.kernels.cuda.product import product

SCORES = 1 << 28  # of a block: 1 GB
_QUERIES = 4096
_COLUMNS, _THREADS = 2048, 256  # of a block of threads: neighbours.cu has the columns, too
_MANY = 8  # candidates per neighbour, beyond which a block's own k-th neighbour is bounded
_GROUP, _GROUPS = 64, 8  # values whose maximum is looked at, and such groups per neighbour at least
_VALUES = 1 << 25  # of vectors, at a time


def nearest(
    queries: DeviceArray,
    vectors: DeviceArray,
    k: int,
    *,
    cosine: bool = True,
    skip: DeviceArray | None = None,
    lengths: DeviceArray | None = None,
) -> tuple[DeviceArray, DeviceArray]:
    """Return the rows of ``vectors`` nearest to each query, and scores, as the naive twin does.

    lengths  the result of ``norms(vectors)``, if it is known
    """
    lengths = norms(vectors) if lengths is None else lengths
    rows = cp.full((len(queries), k), -1, np.int64)
    scores = cp.full((len(queries), k), -np.inf, np.float32)
    if not k or not len(vectors):
        return rows, scores
    step = SCORES // max(1, min(len(queries), _QUERIES))
    step = max(1, min(step, _VALUES // max(1, vectors.shape[1])))
    for start in range(0, len(queries), _QUERIES):
        cut = slice(start, start + _QUERIES)
        some = cp.ascontiguousarray(queries[cut])
        left_out = None if skip is None else cp.asarray(skip[cut], np.int64)
        for first in range(0, len(vectors), step):
            block = slice(first, first + step)
            rows[cut], scores[cut] = _with_block(
                rows[cut],
                scores[cut],
                some,
                vectors[block],
                lengths[block],
                first,
                left_out,
                cosine=cosine,
            )
    return rows, scores


def norms(vectors: DeviceArray) -> DeviceArray:
    """Return the length of each vector: (rows,) float64."""
    lengths = cp.empty(len(vectors), np.float64)
    step = max(1, _VALUES // max(vectors.shape[1], 1))
    for start in range(0, len(vectors), step):
        some = vectors[start : start + step].astype(np.float64)
        lengths[start : start + step] = cp.sqrt((some * some).sum(axis=1))
    return lengths


def _with_block(
    rows: DeviceArray,
    scores: DeviceArray,
    queries: DeviceArray,
    block: DeviceArray,
    lengths: DeviceArray,
    first: int,
    skip: DeviceArray | None,
    *,
    cosine: bool,
) -> tuple[DeviceArray, DeviceArray]:
    """Return the nearest so far, including a block of rows from ``first`` on."""
    count, k = rows.shape
    query_lengths = norms(queries)
    cosines = cp.empty((count, len(block)), np.float32)
    product(_to_unit(queries, query_lengths), _to_unit(block, lengths).T, cosines)
    if skip is not None:
        here = skip - first
        at, column = cp.nonzero((here >= 0) & (here < len(block)))
        cosines[at, here[at, column]] = -np.inf
    scale = (None, None) if cosine else (query_lengths, lengths)
    of, found = _candidates(cosines, scale, scores[:, -1].astype(np.float64), block.shape[1], k)
    exact = _exact(queries, block, of, found)
    if cosine:
        both = query_lengths[of] * lengths[found]
        exact = cp.where(both > 0, exact / cp.where(both > 0, both, 1), 0)
    there, place = cp.nonzero(rows >= 0)
    all_of = cp.concatenate([there, of])
    all_rows = cp.concatenate([rows[there, place], found + first])
    all_scores = cp.concatenate([scores[there, place], exact.astype(np.float32)])
    keys = [all_rows, -all_scores, all_of]
    order = cp.lexsort(cp.stack([key.astype(np.float64) for key in keys]))
    all_of, all_rows, all_scores = all_of[order], all_rows[order], all_scores[order]
    begins = cp.searchsorted(all_of, cp.arange(count))
    rank = cp.arange(len(all_of)) - begins[all_of]
    kept = rank < k
    new_rows, new_scores = cp.full_like(rows, -1), cp.full_like(scores, -np.inf)
    new_rows[all_of[kept], rank[kept]] = all_rows[kept]
    new_scores[all_of[kept], rank[kept]] = all_scores[kept]
    return new_rows, new_scores


def _candidates(
    cosines: DeviceArray, scale: tuple[Any, Any], worst: DeviceArray, width: int, k: int
) -> tuple[DeviceArray, DeviceArray]:
    """Return the rows and columns that may be among the k nearest, of those above ``worst``.

    scale  the lengths of queries and rows, if products count; otherwise None
    """
    rows, columns = cosines.shape
    bound = cp.float64((width + 10) * 2.0**-23)  # twice that of the twin: two roundings
    pieces = -(-columns // _COLUMNS)
    counts = cp.empty(rows * pieces, np.int64)

    def each_piece(instance: str, *arguments: Any) -> None:
        given = cosines, bound, *scale, worst, cp.int64(columns), np.int32(pieces)
        launch_blocks("neighbours", instance, len(counts), _THREADS, *given, *arguments)

    worst = cp.maximum(worst, np.finfo(np.float32).min)  # rows to skip have -inf
    each_piece("count_candidates", counts)
    if columns > k and int(counts.sum()) > _MANY * k * rows:
        # The maxima of groups are k different values at least, and few to sort.
        size = max(1, min(_GROUP, columns // (_GROUPS * k)))
        maxima = cp.empty((rows, columns // size), np.float32)
        sizes = map(cp.int64, (rows, columns, maxima.shape[1], size))
        launch("neighbours", "group_maxima", maxima.size, cosines, bound, *scale, *sizes, maxima)
        worst = cp.maximum(worst, cp.partition(maxima, maxima.shape[1] - k, axis=1)[:, -k])
        each_piece("count_candidates", counts)
    ends = cp.cumsum(counts)
    of, found = cp.empty((2, int(ends[-1])), np.int64)
    each_piece("write_candidates", ends, of, found)
    return of, found


def _to_unit(vectors: DeviceArray, lengths: DeviceArray) -> DeviceArray:
    scale = cp.where(lengths > 0, 1 / cp.where(lengths > 0, lengths, 1), 0)
    return (vectors * scale[:, None]).astype(np.float32)


def _exact(
    queries: DeviceArray, block: DeviceArray, of: DeviceArray, found: DeviceArray
) -> DeviceArray:
    exact = cp.empty(len(of), np.float64)
    step = max(1, _VALUES // max(block.shape[1], 1))
    for start in range(0, len(of), step):
        cut = slice(start, start + step)
        pairs = queries[of[cut]].astype(np.float64) * block[found[cut]]
        exact[cut] = pairs.sum(axis=1)
    return exact
