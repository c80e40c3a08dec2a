"""Features in a file of their own: .npy, mapped, or a sparse matrix in .npz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.etl.reading.matrix import load_matrix

if TYPE_CHECKING:
    import scipy.sparse as sp

_CHUNK = 1 << 26  # bytes


def open_features(path: str | Path, *, checked: bool = True) -> Array | sp.csr_matrix:
    """Return the features of a file, a row a node: a mapped array or a SciPy CSR matrix.

    ``checked`` reads all of them once, for NaN and infinity; without it only the shape is sure.
    """
    path = Path(path)
    features: Any
    if not path.is_file():
        raise InputError(f"there is no {path}", remedy="Check the spelling of --features")
    if path.suffix == ".npz":
        features = load_matrix(str(path), "attr_").tocsr()
    elif path.suffix == ".npy":
        features = _open_npy(path)
    else:
        raise InputError(
            f"{path} cannot be features", expected=".npy (dense) or .npz (SciPy CSR)",
            got=path.suffix or "no suffix",
        )  # fmt: skip
    if checked:
        _check_finite(features, path)
    return features


def _open_npy(path: Path) -> Array:
    try:
        features: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(
            f"{path} cannot be read as .npy", got=str(error),
            remedy="Write it with numpy.save, as an array of numbers",
        ) from error  # fmt: skip
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"{path} has no features",
            expected="a two-dimensional array of numbers, a row a node",
            got=f"shape {features.shape} of {features.dtype}",
        )
    return features


def _check_finite(features: Any, path: Path) -> None:
    """Raise InputError at the first row with NaN, or infinite in 32 bits."""
    sparse = not isinstance(features, np.ndarray)
    values = features.data if sparse else features
    if values.dtype.kind != "f":
        return
    step = max(_CHUNK // max(values[:1].nbytes, 1), 1)
    for start in range(0, len(values), step):
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(
                np.asarray(values[start : start + step]).astype(np.float32, copy=False)
            )
        if not bad.any():
            continue
        first = start + int(np.argmax(bad if bad.ndim == 1 else bad.any(axis=1)))
        if sparse:
            first = int(np.searchsorted(features.indptr, first, "right")) - 1
        raise InputError(
            f"{path}, row {first + 1}: a feature is NaN or not finite in 32 bits",
            remedy="Replace it by a number",
        )
