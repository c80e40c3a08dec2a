"""Vectors in Parquet files, and in an .npy file with ids next to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import CorruptFile, InputError
from penstock.files import save_npy
from penstock.graph import load_npy
from penstock.pipelines.tables.parquet import map_parquet
from penstock.pipelines.tables.types import is_list
from penstock.pipelines.vectors import store
from penstock.sizes import need_memory
from penstock.vector_parts import save_table, vector_lists

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = (".ids.parquet", ".ids.txt", ".ids.npy")


def read_parquet(path: Path) -> tuple[pa.Array, Array]:
    """Return ids and values of a Parquet file, or of all in a directory, by the order of names.

    The ids are in ``id``, or else in the first column; the vectors in ``vector``, or else in the
    only column that holds lists of numbers.
    """
    import pyarrow as pa

    files = store.parquet_files(path) if path.is_dir() else [path]
    if not files:
        raise InputError(
            f"{path} holds no vectors",
            expected=f"{store.FORMAT.file}, or Parquet files with ids and vectors",
            remedy=store.FORMAT.make,
        )
    chunks: list[Any] = []
    pieces: list[Array] = []
    for file in files:
        with map_parquet(file) as opened:
            ids, lists = _columns(opened.schema_arrow, file)
            rows = opened.metadata.num_rows
            table = opened.read(columns=[ids, lists])
        chunks.append(store.as_ids(table.column(ids)))
        pieces.append(_matrix(table.column(lists), rows, file))
    first = chunks[0].type
    for file, chunk, piece in zip(files, chunks, pieces, strict=True):
        if chunk.type != first or piece.shape[1] != pieces[0].shape[1]:
            raise InputError(
                f"{file} does not go with {files[0]}",
                expected=f"ids of type {first}, vectors of {pieces[0].shape[1]} numbers",
                got=f"ids of type {chunk.type}, vectors of {piece.shape[1]}",
            )
    if len(pieces) == 1:
        return chunks[0], pieces[0]
    need_memory(
        2 * sum(piece.nbytes for piece in pieces), f"the vectors of {path}", remedy="Read fewer"
    )
    return pa.concat_arrays(chunks), np.concatenate(pieces)


def _columns(schema: pa.Schema, file: Path) -> tuple[str, str]:
    lists = [field.name for field in schema if is_list(field.type)]
    vector = "vector" if "vector" in lists else lists[0] if len(lists) == 1 else None
    others = [name for name in schema.names if name not in lists]
    if vector is None or not others:
        raise InputError(
            f"{file} holds no vectors",
            expected="a column id, and a column vector with lists of numbers",
            got=", ".join(f"{field.name} ({field.type})" for field in schema),
        )
    return ("id" if "id" in others else others[0]), vector


def _matrix(column: pa.ChunkedArray, rows: int, file: Path) -> Array:
    """Return lists of numbers as (rows, dimension) float32."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        first = int(np.argmax(np.asarray(column.is_null())))
        raise InputError(
            f"{file} has {column.null_count:,} rows without a vector", got=f"null in row {first}"
        )
    kind = column.type
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InputError(f"{file} holds no vectors", expected="lists of numbers", got=str(kind))
    if pa.types.is_fixed_size_list(kind):
        width = int(kind.list_size)
    else:
        lengths = as_numpy(pc.list_value_length(column)) if rows else np.zeros(1, np.int32)
        width = int(lengths[0])
        if len(other := np.flatnonzero(lengths != width)):
            row = int(other[0])
            raise InputError(
                f"{file} has vectors of different lengths",
                expected=f"{width} numbers, as in row 0",
                got=f"{int(lengths[row])} in row {row}",
            )
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise InputError(f"{file} has {flat.null_count:,} nulls in its vectors", expected="numbers")
    if not width:
        raise InputError(f"{file} holds no vectors", expected="lists of at least one number")
    return np.asarray(as_numpy(flat), np.float32).reshape(rows, width)


def sibling_ids(path: Path) -> Path | None:
    """Return the file of ids next to an .npy file, if there is one."""
    stem = path.with_suffix("")
    siblings = [path.with_name(stem.name + ending) for ending in _IDS]
    return next((file for file in siblings if file.is_file()), None)


def read_npy(path: Path, ids: Path | None) -> tuple[pa.Array, Array]:
    """Return ids and values of an .npy file, mapped where it holds float32.

    ids  the file of its ids; None: they are the numbers of the rows
    """
    values = _mapped(path, "float32")
    if values.ndim != 2 or not values.shape[1] or values.dtype.kind not in "fiu":
        raise InputError(
            f"{path} holds no vectors",
            expected="a matrix of numbers, a row of one at least for each id",
            got=f"{'x'.join(map(str, values.shape)) or 'a single'} {values.dtype}",
        )
    if values.dtype != np.float32:
        need_memory(4 * values.size, f"{path} as float32", remedy="Save it as float32")
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused
            values = values.astype(np.float32)
    if ids is None:
        return as_arrow(np.arange(len(values), dtype=np.int64)), values
    return _read_ids(ids), values


def _mapped(path: Path, kind: str) -> Array:
    """Map an .npy file that a user gave."""
    try:
        return load_npy(path)
    except CorruptFile as error:
        raise InputError(
            error.what,
            expected="an .npy array of numbers or text",
            got=error.got,
            remedy=f"Save it again with numpy.save, such as array.astype({kind!r})",
        ) from error


def _read_ids(path: Path) -> pa.Array:
    """Return the ids of a file: a line each, the first column of Parquet, or .npy."""
    import pyarrow as pa

    if not path.is_file():
        raise InputError(f"there is no file {path} with ids", expected="an id for each vector")
    if path.suffix.lower() == ".parquet":
        with map_parquet(path) as file:
            names = file.schema_arrow.names
            if not names:
                raise InputError(f"{path} has no columns", expected="ids in the first column")
            return store.as_ids(file.read(columns=names[:1]).column(0))
    if path.suffix.lower() == ".npy":
        ids = np.array(_mapped(path, "str"))
        if ids.ndim != 1:
            raise InputError(
                f"{path} holds no ids",
                expected="an id for each vector, along one axis",
                got=f"an array of shape {ids.shape}",
            )
        return store.as_ids(ids)
    try:
        # Not splitlines, which also cuts at what may stand in an id.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}", expected="text in UTF-8, an id a line", got=str(error)
        ) from error
    lines = [line.removesuffix("\r") for line in lines]
    return pa.array(lines[:-1] if lines and not lines[-1] else lines)


def write_npy(path: Path, ids: pa.Array, values: Array) -> None:
    """Write values as .npy, and the ids in their own type next to it, as ``.ids.parquet``."""
    import pyarrow as pa

    save_npy(path.parent, path.name, values)
    save_table(path.parent, ids_of_export(path).name, pa.table({"id": ids}))


def ids_of_export(path: Path) -> Path:
    """Return where ``write_npy`` puts the ids."""
    return path.with_name(f"{path.with_suffix('').name}{_IDS[0]}")


def write_parquet(path: Path, ids: pa.Array, values: Array) -> None:
    """Write one Parquet file: ``id``, ``vector``."""
    import pyarrow as pa

    table = pa.table({"id": ids, "vector": vector_lists(values)})
    save_table(path.parent, path.name, table)
