"""Between NumPy and Arrow without pandas, which Arrow itself would import (0.3 s)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.errors import CorruptFile, UsageError
from penstock.files import atomic

if TYPE_CHECKING:
    import pyarrow as pa

_FEW = 16  # times as many values on the other side: then hashing them takes longer


def as_arrow(values: Array, missing: Array | None = None) -> pa.Array:
    """Return ``pa.array(values, mask=missing)`` for an array of numbers, sharing its memory."""
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    if values.dtype.kind not in "iuf" or not values.dtype.isnative:
        return pa.array(values, mask=missing)
    valid = None
    if missing is not None and missing.any():
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def as_numpy(column: pa.Array | pa.ChunkedArray, null: Any = None) -> Array:
    """Return ``np.asarray(column)``, with ``null`` for nulls; plain numbers are not copied."""
    import pyarrow as pa

    if not _numbers(column.type) or (column.null_count and null is None):
        return np.asarray(column if null is None else column.fill_null(null))
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_values(chunk, null) for chunk in chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, _dtype(column.type))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the chunks of a column as one array; a single one is not copied."""
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.nulls(0, column.type)])


def take(values: pa.Array, numbers: Array) -> pa.Array:
    """Return ``values.take(numbers)``; plain numbers avoid Arrow's table functions."""
    if values.null_count or not _numbers(values.type):
        return values.take(as_arrow(numbers))
    return as_arrow(as_numpy(values).take(numbers))


def positions(ids: pa.Array, wanted: pa.Array) -> Array:
    """Return where values of the same type are among different ids, (wanted,) int64; -1: nowhere.

    Ids of most days are those of the day before: to compare them is faster than to look them up.
    The smaller side is hashed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if wanted.null_count == 0 and wanted.equals(ids.slice(0, len(wanted))):
        return np.arange(len(wanted))
    if _FEW * len(wanted) < len(ids):
        different = wanted.dictionary_encode()
        which = positions(different.dictionary, ids)
        there = np.flatnonzero(which >= 0)
        at = np.full(len(different.dictionary) + 1, -1)  # and of null
        at[which[there]] = there
        found: Array = at[np.asarray(pc.fill_null(different.indices.cast(pa.int64()), -1))]
        return found
    every = pc.index_in(wanted, value_set=ids, skip_nulls=True)
    return np.asarray(pc.fill_null(every.cast(pa.int64()), -1))


def lists_of(lists: pa.ListArray) -> tuple[Array, Array, Array]:
    """Return the start of each list, all values, and which lists are not null."""
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    return offsets_of(lengths), np.asarray(pc.list_flatten(lists)), np.asarray(lists.is_valid())


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Raise CorruptFile for a file of Parquet that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"{path} cannot be read", got=str(error)) from error


def read_column(path: Path, name: str) -> pa.ChunkedArray:
    """Return a column of a Parquet file, as ``pq.read_table`` would."""
    import pyarrow.parquet as pq

    with reading_parquet(path), pq.ParquetFile(path, memory_map=True) as file:
        known = file.schema_arrow.names
        if name not in known:
            raise UsageError(f"{path} has no column {name!r}", expected=f"one of {known}")
        return file.read(columns=[name]).column(0)


def read_table(path: Path, names: list[str] | None = None) -> pa.Table:
    """Return some columns of a Parquet file, by default all."""
    import pyarrow.parquet as pq

    with reading_parquet(path):
        return pq.read_table(path, columns=names)


def read_schema(path: Path) -> pa.Schema:
    """Return the schema of a Parquet file."""
    import pyarrow.parquet as pq

    with reading_parquet(path):
        return pq.read_schema(path)


def write_parquet(
    path: Path, tables: Iterable[pa.Table], *, rows: int | None = None, **how: Any
) -> None:
    """Write tables of one schema, one after another, as one file, atomically.

    rows  at most, of a row group; how: as ``pq.ParquetWriter`` takes it
    """
    import pyarrow.parquet as pq

    with atomic(path) as temporary, ExitStack() as opened:
        writer = None
        for table in tables:
            if writer is None:
                writer = pq.ParquetWriter(temporary, table.schema, **{"compression": "zstd"} | how)
                opened.enter_context(writer)
            writer.write_table(table, row_group_size=rows)


def as_numbers(schema: pa.Schema) -> dict[str, Any]:
    """Return how columns are written whose integers are ascending, or nearly so."""
    import pyarrow as pa

    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    encoding = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")
    return {"use_dictionary": False, "column_encoding": encoding}


def copy_columns(source: Path, path: Path, names: list[str], **how: Any) -> None:
    """Write columns of a Parquet file as another one, some rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading_parquet(source), pq.ParquetFile(source) as file:
        batches = file.iter_batches(1 << 20, columns=names)
        tables = (pa.Table.from_batches([batch]).select(names) for batch in batches)
        write_parquet(path, tables, **how)


def written_bytes(values: pa.Array) -> float:
    """Return the bytes per value of a column of these ids in Parquet, with zstd.

    Integers are written as differences, others with a dictionary unless it is too large.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    numbers = pa.types.is_integer(values.type)
    pq.write_table(
        pa.table({"id": values}),
        file,
        compression="zstd",
        use_dictionary=not numbers,
        column_encoding={"id": "DELTA_BINARY_PACKED"} if numbers else None,
    )
    return file.getbuffer().nbytes / max(len(values), 1)


def _numbers(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _dtype(kind: Any) -> np.dtype[Any]:
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}
    return np.dtype(name.get(str(kind), str(kind)))


def _values(chunk: pa.Array, null: Any) -> Array:
    valid, buffer = chunk.buffers()
    dtype = _dtype(chunk.type)
    values: Array = np.frombuffer(buffer, dtype, len(chunk), chunk.offset * dtype.itemsize)
    if not chunk.null_count:
        return values
    bits = np.frombuffer(valid, np.uint8)
    there = np.unpackbits(bits, count=chunk.offset + len(chunk), bitorder="little")
    return np.where(there[chunk.offset :].astype(bool), values, dtype.type(null))
