"""Nearest neighbours among vectors on a GPU: products by cuBLAS, then exact scores.

As on the CPU, a product in float32 of unit vectors bounds a score, and rows that may be among the
nearest by that bound are scored again in float64.
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.product import product

SCORES = 1 << 26  # of a block: 256 MB
_QUERIES = 1024
_GROUP, _GROUPS = 64, 8  # values whose maximum is looked at, and such groups per neighbour at least
_EXACT = 1 << 25  # values of vectors gathered at a time for exact scores


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
    step = max(1, SCORES // max(1, min(len(queries), _QUERIES)))
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
    step = max(1, _EXACT // max(vectors.shape[1], 1))
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
    estimates = cp.empty((count, len(block)), np.float32)
    product(_to_unit(queries, query_lengths), _to_unit(block, lengths).T, estimates)
    bound = np.float32((block.shape[1] + 10) * 2.0**-23)  # twice that of the twin: two roundings
    lower = upper = estimates
    if not cosine:
        # Scaled in float32, which rounds twice more: outwards by more than that.
        upper, lower = estimates + bound, estimates - bound
        for ends, outwards in ((upper, 1 + 2.0**-21), (lower, 1 - 2.0**-21)):
            ends *= lengths.astype(np.float32)
            ends *= query_lengths.astype(np.float32)[:, None]
            ends *= cp.where(ends > 0, np.float32(outwards), np.float32(2 - outwards))
        bound = np.float32(0)
    if skip is not None:
        here = skip - first
        at, column = cp.nonzero((here >= 0) & (here < len(block)))
        upper[at, here[at, column]] = lower[at, here[at, column]] = -np.inf
    # Rows below the k-th of the lower ends are not among the nearest, nor are those below the k-th
    # so far.
    worst = scores[:, -1:] - bound
    if len(block) > k:
        worst = cp.maximum(worst, _at_most_kth(lower, k) - 2 * bound)
    of, found = cp.nonzero(upper >= cp.maximum(worst, np.finfo(np.float32).min))
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


def _at_most_kth(values: DeviceArray, k: int) -> DeviceArray:
    """Return a lower bound of the k-th largest of each row: (rows, 1)."""
    # The maxima of groups are k different values at least, and few to sort.
    groups = values.shape[1] // _GROUP
    if groups >= _GROUPS * k:
        values = values[:, : groups * _GROUP].reshape(len(values), groups, _GROUP).max(axis=2)
    return cp.partition(values, values.shape[1] - k, axis=1)[:, -k, None]


def _to_unit(vectors: DeviceArray, lengths: DeviceArray) -> DeviceArray:
    scale = cp.where(lengths > 0, 1 / cp.where(lengths > 0, lengths, 1), 0)
    return (vectors * scale[:, None]).astype(np.float32)


def _exact(
    queries: DeviceArray, block: DeviceArray, of: DeviceArray, found: DeviceArray
) -> DeviceArray:
    exact = cp.empty(len(of), np.float64)
    step = max(1, _EXACT // max(block.shape[1], 1))
    for start in range(0, len(of), step):
        cut = slice(start, start + step)
        pairs = queries[of[cut]].astype(np.float64) * block[found[cut]]
        exact[cut] = pairs.sum(axis=1)
    return exact
