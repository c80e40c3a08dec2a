"""Nearest neighbours among vectors: the k rows of the highest score, by cosine or dot product."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def nearest(
    queries: Array, vectors: Array, k: int, *, cosine: bool = True, skip: Array | None = None
) -> tuple[Array, Array]:
    """Return the rows of ``vectors`` nearest to each query, nearest first, and their scores.

    Scores are computed in float64 and rounded to float32; of equal scores the lower row comes
    first. A vector of zeros has cosine 0 with every other.

    Parameters
    ----------
    queries, vectors
        (queries, dimension) and (rows, dimension) float32, all finite.
    k
        How many rows.
    cosine
        By cosine; otherwise by dot product.
    skip
        (queries, m) int64 rows to skip for each query; -1: no row.

    Returns
    -------
    tuple of Array
        (queries, k) int64 rows and float32 scores; -1 and -inf beyond the last.
    """
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    if cosine:
        lengths = norms(queries)[:, None] * norms(vectors)
        scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
    rounded = scores.astype(np.float32)
    rows = np.full((len(queries), k), -1, np.int64)
    best = np.full((len(queries), k), -np.inf, np.float32)
    for query in range(len(queries)):
        left_out = np.empty(0, np.int64) if skip is None else skip[query]
        kept = np.setdiff1d(np.arange(len(vectors)), left_out)
        order = kept[np.argsort(-rounded[query, kept], kind="stable")][:k]
        rows[query, : len(order)], best[query, : len(order)] = order, rounded[query, order]
    return rows, best


def norms(vectors: Array) -> Array:
    """Return the length of each vector: (rows,) float64."""
    lengths: Array = np.sqrt(np.square(vectors.astype(np.float64)).sum(axis=1))
    return lengths
