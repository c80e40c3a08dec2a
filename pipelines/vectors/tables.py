"""Vectors in Parquet files, and in an .npy file with ids next to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import CorruptFile, InputError
from penstock.graph import load_npy
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_ids, read_rows, schema_with_rows
from penstock.pipelines.tables.rows import Rows
from penstock.pipelines.tables.sources import format_of
from penstock.pipelines.tables.text import TextShape
from penstock.pipelines.tables.types import is_list
from penstock.pipelines.vectors import store
from penstock.sizes import need_memory

_NO_TEXT = TextShape((), "")
_TABLES = ("parquet", "arrow")
_IDS = (".ids.parquet", ".ids.txt", ".ids.npy")


def read_lists(files: Sequence[str]) -> tuple[pa.Array, Array]:
    """Return ids and values of Parquet and Arrow IPC files, file after file.

    The ids are in ``id``, or else in the first column; the vectors in ``vector``, or else in the
    only column that holds lists of numbers.
    """
    found: list[tuple[str, pa.Array, Array]] = []
    for file in files:
        kind = format_of(file) or "parquet"
        schema = schema_with_rows(file, kind)
        if schema is None:
            continue
        ids, lists = _columns(schema, file)
        for rows in read_rows(Piece(file, kind), {ids: "string", lists: "list"}, _NO_TEXT):
            found.append((file, rows.columns[ids], _matrix(rows, rows.columns[lists], file)))
    if not found:
        raise InputError(f"{', '.join(files[:3])} has no vectors", remedy=store.FORMAT.make)
    first, chunk, values = found[0]
    kind, width = chunk.type, values.shape[1]
    for file, ids, values in found:
        if ids.type != kind or values.shape[1] != width:
            raise InputError(
                f"{file} does not match {first}",
                expected=f"ids of type {kind}, vectors of {width} numbers",
                got=f"ids of type {ids.type}, vectors of {values.shape[1]}",
            )
    if len(found) == 1:
        return chunk, values
    size = sum(values.nbytes for *_, values in found)
    need_memory(size, f"the vectors of {first}", remedy="Read fewer")
    return pa.concat_arrays([ids for _, ids, _ in found]), np.concatenate([v for *_, v in found])


def _columns(schema: pa.Schema, file: str) -> tuple[str, str]:
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


def _matrix(rows: Rows, column: pa.Array, file: str) -> Array:
    """Return lists of numbers as (rows, dimension) float32."""
    if column.null_count:
        first = rows.source.number(int(np.argmax(np.asarray(column.is_null()))))
        raise InputError(f"{file} has rows without a vector", got=f"null in row {first}")
    kind = column.type
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InputError(f"{file} holds no vectors", expected="lists of numbers", got=str(kind))
    lengths = as_numpy(pc.list_value_length(column))
    width = int(lengths[0])
    if len(other := np.flatnonzero(lengths != width)):
        row = int(other[0])
        raise InputError(
            f"{file} has vectors of different lengths",
            expected=f"{width} numbers, as in row {rows.source.number(0)}",
            got=f"{int(lengths[row])} in row {rows.source.number(row)}",
        )
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise InputError(f"{file} has {flat.null_count:,} nulls in its vectors", expected="numbers")
    if not width:
        raise InputError(f"{file} holds no vectors", expected="lists of at least one number")
    return np.asarray(as_numpy(flat), np.float32).reshape(len(column), width)


def sibling_ids(path: Path) -> Path | None:
    """Return the file of ids next to an .npy file, if there is one."""
    stem = path.with_suffix("")
    siblings = [path.with_name(stem.name + ending) for ending in _IDS]
    return next((file for file in siblings if file.is_file()), None)


def read_npy(path: Path, ids: Path | None) -> tuple[pa.Array, Array]:
    """Return ids and values of an .npy file, mapped if it holds float32.

    ids  the file of its ids; None: the numbers of the rows
    """
    values = _mapped(path, "float32")
    if values.ndim != 2 or not values.shape[1] or values.dtype.kind not in "fiu":
        raise InputError(
            f"{path} holds no vectors",
            expected="a matrix of numbers, one row of at least one number per id",
            got=f"{'x'.join(map(str, values.shape)) or 'a single'} {values.dtype}",
        )
    if values.dtype != np.float32:
        need_memory(4 * values.size, f"{path} as float32", remedy="Save it as float32")
        with np.errstate(over="ignore"):  # overflow is infinite, and refused
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
    """Return the ids of a file: .npy, or a format of ``read_ids``."""
    if path.suffix.lower() != ".npy":
        return read_ids(str(path))
    ids = np.array(_mapped(path, "str"))
    if ids.ndim != 1:
        raise InputError(
            f"{path} holds no ids",
            expected="an id for each vector, along one axis",
            got=f"an array of shape {ids.shape}",
        )
    return store.as_ids(ids)
