"""Features in a file of their own, .npy or a sparse matrix in .npz; and missing features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.tables.matrix import load_matrix

if TYPE_CHECKING:
    import scipy.sparse as sp

_CHUNK = 1 << 26  # bytes


def open_features(
    path: str | Path, *, checked: bool = True, may_miss: bool = False
) -> Array | sp.csr_matrix:
    """Return the features of a file, one row per node: a mapped array or a SciPy CSR matrix.

    ``checked`` reads all of them once and refuses NaN (unless some ``may_miss``) and infinity;
    without it only the shape is checked.
    """
    path = Path(path)
    is_sparse = path.suffix == ".npz"
    features: Any = load_matrix(str(path), "attr_").tocsr() if is_sparse else _open_npy(path)
    if checked:
        _check_finite(features, path, may_miss=may_miss)
    return features


def _open_npy(path: Path) -> Array:
    try:
        features: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(
            f"{path} cannot be read as .npy",
            got=str(error),
            remedy="Write it with numpy.save, as an array of numbers",
        ) from error
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"{path} has no features",
            expected="a two-dimensional array of numbers, one row per node",
            got=f"shape {features.shape} of {features.dtype}",
        )
    return features


def missing_as(features: Any, how: str) -> tuple[Array | None, int]:
    """Return one number per column to fill NaN with, and how many values are NaN.

    how  ``zero``, or ``mean``: of the values that exist (zeros of a sparse matrix included; 0 if
    none exists); ``error``: none is missing
    """
    if how == "error":
        return None, 0
    mean, missing = means_and_missing(features)
    return np.zeros(len(mean)) if how == "zero" else mean, int(missing.sum())


def means_and_missing(features: Any) -> tuple[Array, Array]:
    """Return the mean of each column's values (0 without any), and how many are NaN."""
    rows, width = features.shape
    sums, missing = np.zeros(width), np.zeros(width, np.int64)
    if isinstance(features, np.ndarray):
        for _, values in _pieces(features):
            nan = np.isnan(values)
            missing += nan.sum(axis=0)
            sums += np.where(nan, 0, values).sum(axis=0, dtype=np.float64)
    else:
        nan = np.isnan(features.data)
        missing = np.bincount(features.indices[nan], minlength=width)
        sums = np.bincount(features.indices[~nan], features.data[~nan], minlength=width)
    return sums / np.maximum(rows - missing, 1), missing


def deviations(features: Array, means: Array) -> Array:
    """Return the deviation of each column's values: exactly 0 if they are equal."""
    squares, count = np.zeros(len(means)), np.zeros(len(means), np.int64)
    least, most = np.full(len(means), np.inf), np.full(len(means), -np.inf)
    for _, values in _pieces(features):
        least = np.fmin(least, np.fmin.reduce(values, axis=0))
        most = np.fmax(most, np.fmax.reduce(values, axis=0))
        away = values - means
        nan = np.isnan(away)
        away[nan] = 0
        count += len(nan) - nan.sum(axis=0)
        squares += np.einsum("ij,ij->j", away, away)
    return np.where(most > least, np.sqrt(squares / np.maximum(count, 1)), 0.0)


def fill_missing(features: Any, fill: Array) -> Any:
    """Replace NaN by ``fill``, in place."""
    if isinstance(features, np.ndarray):
        row, column = np.nonzero(np.isnan(features))
        features[row, column] = fill[column]
    else:
        nan = np.flatnonzero(np.isnan(features.data))
        features.data[nan] = fill[features.indices[nan]]
    return features


def _pieces(values: Array) -> Iterator[tuple[int, Array]]:
    """Yield a mapped array piece by piece, each with its first row."""
    step = max(_CHUNK // max(values[:1].nbytes, 1), 1)
    for start in range(0, len(values), step):
        yield start, np.asarray(values[start : start + step])


def _check_finite(features: Any, path: Path, *, may_miss: bool) -> None:
    """Raise InputError at the first row with NaN, or infinite in 32 bits."""
    sparse = not isinstance(features, np.ndarray)
    values = features.data if sparse else features
    if values.dtype.kind != "f":
        return
    for start, piece in _pieces(values):
        with np.errstate(over="ignore"):
            narrow = piece.astype(np.float32, copy=False)
        nan = np.isnan(narrow)
        bad = np.isinf(narrow) if may_miss else ~np.isfinite(narrow)
        if not bad.any():
            continue
        first = start + int(np.argmax(bad if bad.ndim == 1 else bad.any(axis=1)))
        is_nan = bool(np.any(nan[first - start]))
        if sparse:
            first = int(np.searchsorted(features.indptr, first, "right")) - 1
        raise InputError(
            f"{path}, row {first + 1}: a feature is {'NaN' if is_nan else 'not finite in 32 bits'}",
            remedy="Replace it by a number"
            + (", or give --missing-features zero or mean" if is_nan else ""),
        )
