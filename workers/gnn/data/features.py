"""Features as a dense matrix or as sparse rows, as the computation needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import ScaledCSR

_PIECE = 1 << 22  # values read at once


def as_sparse(features: Any) -> ScaledCSR:
    """Return features as a block: nodes are rows, features are columns, values float32 weights."""
    if isinstance(features, np.ndarray):
        return _without_zeros(features)
    if not features.has_canonical_format:
        features = features.copy()
        features.sum_duplicates()  # sorts, too
    return ScaledCSR(
        features.indptr.astype(np.int64, copy=False).view(np.ndarray),
        features.indices.astype(np.int32, copy=False).view(np.ndarray),
        int(features.shape[1]),
        features.data.astype(np.float32, copy=False).view(np.ndarray),
    )


def as_dense(features: Any) -> Array:
    """Return features as a row-major matrix of float32."""
    if isinstance(features, np.ndarray):
        return np.ascontiguousarray(features, np.float32)
    return np.asarray(features.astype(np.float32, copy=False).toarray(order="C"))


def _without_zeros(matrix: Array) -> ScaledCSR:
    rows, width = matrix.shape
    lengths = [np.count_nonzero(piece, axis=1) for piece in _pieces(matrix)]
    indptr = np.zeros(rows + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=indptr[1:])
    indices = np.empty(indptr[-1], np.int32)
    weights = np.empty(indptr[-1], np.float32)
    first = 0
    for piece in _pieces(matrix):
        filled = np.flatnonzero(piece)
        span = slice(first, first + len(filled))
        indices[span], weights[span] = filled % width, piece.reshape(-1)[filled]
        first = span.stop
    return ScaledCSR(indptr, indices, width, weights)


def _pieces(matrix: Array) -> list[Array]:
    rows, width = matrix.shape
    step = max(1, _PIECE // max(width, 1))
    return [matrix[first : first + step] for first in range(0, rows, step)]
