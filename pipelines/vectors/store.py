"""Penstock's directory of vectors, and its manifest.

vectors.json          number, dimension, the job that made them; written last
part-00000.parquet    id (any type), vector (fixed-size list of float32), count if there is one
vectors.npy           (rows, dimension) float32, in the order of the parts: to be mapped
context.npy           word2vec's output vectors, from which a training run can resume
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy, one_array, read_column, reading_parquet
from penstock.errors import CorruptFile, InputError
from penstock.files import FileEntry, file_table, link, part_name, save_npy
from penstock.formats import Format
from penstock.graph import load_npy
from penstock.threads import spread
from penstock.vector_parts import rows_of_part, save_part

FORMAT = Format(
    name="penstock-vectors",
    version=1,
    file="vectors.json",
    thing="directory of vectors",
    make="Make one with penstock word2vec train",
    restore="Restore the file, or make the vectors again with --overwrite",
)
VALUES, CONTEXT = "vectors.npy", "context.npy"


def write_vectors(folder: Path, ids: Any, values: Array, **more: Any) -> int:
    """Write vectors and, last, their manifest: see ``save_vectors``; return bytes of all files."""
    size, body = save_vectors(folder, ids, values, **more)
    FORMAT.save(folder, body)
    return size


def save_vectors(
    folder: Path,
    ids: Any,
    values: Array,
    *,
    counts: Array | None = None,
    context: Array | None = None,
    written: Mapping[str, tuple[Path, FileEntry]] = MappingProxyType({}),
    parts: Sequence[FileEntry] = (),
    files: Iterable[FileEntry] = (),
    **about: Any,
) -> tuple[int, dict[str, Any]]:
    """Write vectors, without their manifest, into a folder that exists.

    Parameters
    ----------
    folder
        The partial directory of a job, or a run's folder.
    ids
        The user's ids: an Arrow array, or values for one; all are different, none is null.
    values
        (rows, dimension) float32, one row per id.
    counts
        How often each was seen, a column of the Parquet files.
    context
        (rows, dimension) float32: word2vec's output vectors, to resume from.
    written
        By name, VALUES or CONTEXT: a .npy file of the same disk that holds these very values and
        never changes, and its entry. It gets a second name instead of a copy.
    parts
        The Parquet files, if ``save_part`` has already written all of them to ``folder``.
    files
        Other files of the folder that the manifest lists.
    **about
        Other entries of the manifest: ``made_by``, ``options``, ``state`` ...

    Returns
    -------
    tuple of int and dict
        Bytes of all files; the entries of the manifest.

    Raises
    ------
    InputError
        The numbers of ids and values differ, or an id occurs twice.
    """
    ids = checked_ids(as_ids(ids), len(values), str(folder))
    values = np.ascontiguousarray(values, np.float32)
    if values.ndim != 2:
        raise InputError("vectors have one row per id", expected="two axes", got=f"{values.ndim}")
    rows = rows_of_part(values.shape[1])
    starts = range(0, max(len(values), 1), rows)
    assert len(parts) in (0, len(starts))
    entries = {entry.name: entry for entry in parts}

    def keep(make: Callable[[], FileEntry]) -> None:
        entry = make()
        entries[entry.name] = entry

    arrays = {VALUES: values}
    if context is not None:
        arrays[CONTEXT] = np.asarray(context, np.float32)
    pieces: list[Callable[[], FileEntry]] = []
    for name, array in arrays.items():
        if name in written:
            path, entry = written[name]
            link(path, folder / name)
            entries[name] = replace(entry, name=name)
        else:
            pieces.append(partial(save_npy, folder, name, array))
    for number, start in enumerate(() if parts else starts):
        cut = slice(start, start + rows)
        some = None if counts is None else counts[cut]
        pieces.append(partial(save_part, folder, number, ids[cut], values[cut], some))
    spread(keep, pieces)
    listed = [*(entries[name] for name in sorted(entries)), *files]
    body = {
        **about,
        "rows": len(values),
        "dimension": int(values.shape[1]),
        "parts": len(starts),
        "files": file_table(listed),
    }
    return sum(entry.bytes for entry in listed), body


def read_store(folder: Path) -> tuple[pa.Array, Array, dict[str, Any]]:
    """Return ids, values (mapped) and the manifest of a directory of Penstock."""
    body = FORMAT.load(folder)
    FORMAT.files(folder, body)
    with FORMAT.reading(folder):
        shape = (body["rows"], body["dimension"])
        names = [f"{part_name(number)}.parquet" for number in range(body["parts"])]
    values = _load(folder / VALUES, shape)
    chunks = [one for name in names for one in read_column(folder / name, "id").chunks]
    ids = pa.concat_arrays(chunks) if chunks else pa.array([])
    if len(ids) != len(values):
        raise CorruptFile(
            f"the parts of {folder} do not belong to {VALUES}",
            expected=f"{len(values):,} ids",
            got=f"{len(ids):,} in {len(names)} parts",
            remedy=FORMAT.restore,
        )
    return ids, values, body


def first_id(folder: Path) -> Any:
    """Return the id of the first row of a directory of Penstock, which is not empty."""
    path = folder / f"{part_name(0)}.parquet"
    with reading_parquet(path), pq.ParquetFile(path) as file:
        return next(file.iter_batches(1, columns=["id"])).column(0)[0].as_py()


def read_context(folder: Path, body: dict[str, Any]) -> Array | None:
    """Return word2vec's output vectors, mapped, if the directory has them.

    body  the content of its vectors.json
    """
    if CONTEXT not in body.get("files", ()):
        return None
    return _load(folder / CONTEXT, (body["rows"], body["dimension"]))


def _load(path: Path, shape: tuple[int, int]) -> Array:
    """Map an array; raise if its shape is not that of the manifest."""
    values = load_npy(path, remedy=FORMAT.restore)
    if values.shape != shape or values.dtype != np.float32:
        raise CorruptFile(
            f"{path} does not match {FORMAT.file}",
            expected=f"{shape} float32",
            got=f"{values.shape} {values.dtype}",
            remedy=FORMAT.restore,
        )
    return values


def as_ids(ids: Any) -> pa.Array:
    """Return ids as one Arrow array."""
    if isinstance(ids, pa.ChunkedArray):
        return one_array(ids)
    if isinstance(ids, pa.Array):
        return ids
    return as_arrow(ids) if isinstance(ids, np.ndarray) else pa.array(ids)


def checked_ids(ids: pa.Array, rows: int, where: str) -> pa.Array:
    """Return ``ids``; InputError if one is missing, null, or there twice."""
    if len(ids) != rows:
        raise InputError(
            f"{where} has {len(ids):,} ids for {rows:,} vectors", expected="an id for each vector"
        )
    if ids.null_count:
        first = int(np.argmax(np.asarray(ids.is_null())))
        raise InputError(
            f"{where} has {ids.null_count:,} vectors without an id",
            got=f"null in row {first}",
            remedy="Leave these rows out",
        )
    if _ascending(ids):
        return ids
    if len(pc.unique(ids)) != rows:
        first_row = np.asarray(pc.index_in(ids, value_set=ids))
        again = np.flatnonzero(first_row != np.arange(rows))
        row = int(again[0])
        raise InputError(
            f"{where} has {len(again):,} ids a second time",
            expected="different ids",
            got=f"{ids[row].as_py()!r} in rows {int(first_row[row])} and {row}",
            remedy="Leave one of each pair out",
        )
    return ids


def _ascending(ids: pa.Array) -> bool:
    """Return whether ids are ascending whole numbers, and therefore different."""
    if not pa.types.is_integer(ids.type):
        return False
    numbers = as_numpy(ids)
    return bool((numbers[1:] > numbers[:-1]).all())
