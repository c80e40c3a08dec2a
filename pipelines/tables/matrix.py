"""Matrices in .npz files as edges: SciPy's CSR, CSC and COO, also with a prefix as ``adj_``."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.pipelines.tables.rows import BATCH_ROWS, Rows
from penstock.pipelines.tables.sources import open_file

if TYPE_CHECKING:
    import scipy.sparse as sp

_CHUNK = BATCH_ROWS // 4


COLUMNS = ("row", "column", "data")


def matrix_columns(path: str) -> tuple[str, ...]:
    """Return the columns of a matrix; data are left out if all entries are one."""
    matrix = load_matrix(path, "adj_")
    if matrix.nnz == 0:
        return ()
    return COLUMNS[:2] if bool((matrix.data == 1).all()) else COLUMNS


def is_symmetric(path: str) -> bool:
    """Say whether a matrix is its own transpose, apart from rounding."""
    matrix = load_matrix(path, "adj_").tocsr()
    matrix.sum_duplicates()
    other = matrix.T.tocsr()
    return bool(
        matrix.shape == other.shape
        and np.array_equal(matrix.indptr, other.indptr)
        and np.array_equal(matrix.indices, other.indices)
        and np.allclose(matrix.data, other.data, rtol=1e-6, atol=0)
    )


def read_entries(path: str, names: Sequence[str]) -> Iterator[Rows]:
    """Return columns of a matrix's entries, row after row, as they are stored."""
    matrix = load_matrix(path, "adj_")
    for start in range(0, matrix.nnz, _CHUNK):
        stop = min(start + _CHUNK, matrix.nnz)
        if matrix.format == "coo":
            rows, columns = matrix.row[start:stop], matrix.col[start:stop]
        else:
            major = np.searchsorted(matrix.indptr, np.arange(start, stop), "right") - 1
            rows, columns = major, matrix.indices[start:stop]
            if matrix.format == "csc":
                rows, columns = columns, rows
        entries = rows.astype(np.int64), columns.astype(np.int64), matrix.data[start:stop]
        found = dict(zip(COLUMNS, map(pa.array, entries), strict=True))
        yield Rows.of(path, start, {name: found[name] for name in names})


def load_matrix(path: str, prefix: str) -> sp.csr_matrix:
    """Load a sparse matrix whose parts have SciPy's names, with ``prefix`` or without."""
    import scipy.sparse as sp

    parts = _load_parts(path, prefix)
    kind = np.asarray(parts.pop("format", "csr")).item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    try:
        shape = tuple(int(n) for n in parts["shape"])
        if kind == "coo":
            matrix = sp.coo_matrix((parts["data"], (parts["row"], parts["col"])), shape=shape)
        else:
            make = {"csr": sp.csr_matrix, "csc": sp.csc_matrix}[kind]
            matrix = make((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
            matrix.check_format(full_check=True)
    except (KeyError, ValueError, IndexError) as error:
        raise InputError(
            f"{path} is not a sparse matrix that can be read as edges or features",
            expected="data, indices, indptr and shape, as scipy.sparse.save_npz writes them, "
            f"or the same with {prefix} before each",
            got=f"format {kind}, arrays {', '.join(parts) or 'none'}: {error}",
        ) from error
    if matrix.data.dtype.kind not in "biuf":
        raise InputError(f"the entries of {path} are not numbers", got=str(matrix.data.dtype))
    return matrix


def _load_parts(path: str, prefix: str) -> dict[str, Any]:
    names = {"data", "indices", "indptr", "shape", "format", "row", "col"}
    with open_file(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                chosen = {n.removeprefix(prefix): n for n in archive.files if n.startswith(prefix)}
                if not names & set(chosen):
                    chosen = {n: n for n in archive.files}
                return {part: archive[name] for part, name in chosen.items() if part in names}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
            raise InputError(
                f"{path} cannot be read as .npz",
                got=str(error),
                remedy="Write it with scipy.sparse.save_npz",
            ) from error
