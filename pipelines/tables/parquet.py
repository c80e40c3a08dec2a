"""Parquet files: their types as Penstock names them, and their rows by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError
from penstock.pipelines.tables.rows import BATCH_ROWS
from penstock.pipelines.tables.sources import open_file
from penstock.pipelines.tables.types import bare_type

_BATCH_BYTES = 1 << 26
LEAST_ROWS = 1 << 14


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Open a Parquet file; raise if it is another format."""
    with open_file(path) as raw:
        with _naming(path):
            file = pq.ParquetFile(raw)
        with file:
            check_names(file.schema_arrow.names, path)
            yield file


def read_row_groups(
    file: Any, path: str, groups: range, columns: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Read columns of some row groups, a bounded number of rows at a time."""
    rows = _rows_at_once(file, groups, columns)
    batches = file.iter_batches(
        batch_size=rows, row_groups=list(groups), columns=list(columns), use_threads=False
    )
    while True:
        with _naming(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield {name: plain(batch.column(name)) for name in columns}


def plain(array: pa.Array) -> pa.Array:
    """Return an array without wrappers: extension types, dictionaries and views."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, plain(array.dictionary))
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):  # Polars writes them; few functions take them
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    elif isinstance(array, pa.ListArray | pa.LargeListArray):
        values = plain(array.values)
        if values.type != array.values.type:
            whole = pa.concat_arrays([array]) if array.offset else array
            mask = whole.is_null() if whole.null_count else None
            array = type(whole).from_arrays(whole.offsets, plain(whole.values), mask=mask)
    return array


def column_bytes(metadata: Any, group: int, columns: Sequence[str]) -> tuple[int, int]:
    """Return the bytes of some columns of a row group, uncompressed and on disk."""
    info = metadata.row_group(group)
    raw = packed = 0
    for i in range(info.num_columns):
        column = info.column(i)
        path = column.path_in_schema
        if path in columns or path.split(".", 1)[0] in columns:
            raw += column.total_uncompressed_size
            packed += column.total_compressed_size
    return raw, packed


@contextmanager
def naming(path: str, kind: str, remedy: str) -> Iterator[None]:
    """Add the file's name to pyarrow's errors."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as {kind}",
            got=next(iter(str(error).splitlines()), type(error).__name__),
            remedy=f"The file is damaged, or {remedy}",
        ) from error


def _naming(path: str) -> AbstractContextManager[None]:
    return naming(path, "Parquet", "not Parquet: give --format if its name misleads")


def check_names(names: Sequence[str], path: str) -> None:
    """Raise InputError if several columns have the same name: it cannot select one of them."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path} has {names.count(twice)} columns named {twice!r}",
            expected="columns with different names",
            remedy="Rename them when the file is written",
        )


def _rows_at_once(file: Any, groups: range, columns: Sequence[str]) -> int:
    rows = sum(file.metadata.row_group(g).num_rows for g in groups)
    size = sum(column_bytes(file.metadata, g, columns)[0] for g in groups)
    fixed = sum(_fixed_width(file.schema_arrow.field(name).type) for name in columns)
    # Dictionaries make strings look smaller than they are.
    width = max(size / max(rows, 1), fixed)
    return int(min(max(_BATCH_BYTES / max(width, 1), LEAST_ROWS), BATCH_ROWS))


def _fixed_width(kind: pa.DataType) -> int:
    kind = bare_type(kind)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 64  # of variable width: a high guess
