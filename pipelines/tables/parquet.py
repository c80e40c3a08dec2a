"""Parquet files: their types in our terms, and their rows a few row groups at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.moments import TimeType
from penstock.pipelines.tables.columns import is_text
from penstock.pipelines.tables.rows import BATCH_ROWS
from penstock.pipelines.tables.sources import open_file

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 1 << 26
_LEAST_ROWS = 1 << 14


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Open a Parquet file, or say that it is none."""
    import pyarrow.parquet as pq

    with open_file(path) as raw:
        with _naming(path):
            file = pq.ParquetFile(raw)
        with file:
            _check_names(file.schema_arrow.names, path)
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
    """Return an array without the wrappings: extension types and dictionaries."""
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
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


def id_type(source: pa.DataType, target: pa.DataType, asked: str, path: str) -> str:
    """Return the type that ids of both columns fit: integers stay integers, bytes bytes."""
    kinds = {check_ids(source, asked, path), check_ids(target, asked, path)}
    if asked != "auto":
        return asked
    if len(kinds) == 1:
        return kinds.pop()
    return "uint64" if kinds == {"int64", "uint64"} else "string"


def check_ids(kind: pa.DataType, asked: str, path: str) -> str:
    """Return the id type of a column, or say that it cannot be read as the one ``asked`` for."""
    import pyarrow as pa

    types, kind = pa.types, _bare(kind)
    # pandas turns integers among which one is missing into floats.
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "uint64" if types.is_uint64(kind) else "int64"
    if is_text(kind):
        return "string"
    if types.is_fixed_size_binary(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        if asked in ("int64", "uint64"):
            raise _wrong_type("node ids", asked, kind, path)
        return "binary"
    raise _wrong_type("node ids", "integers, strings or bytes", kind, path)


def time_type(kind: pa.DataType, path: str) -> TimeType:
    """Return how a time column is kept."""
    import pyarrow as pa

    kind = _bare(kind)
    if pa.types.is_integer(kind):
        return "int64"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float64"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_text(kind):
        return "timestamp"
    raise _wrong_type("time", "integers, floats, timestamps, dates or ISO texts", kind, path)


def need_number(kind: pa.DataType, what: str, path: str) -> None:
    """Raise InputError unless a column can hold numbers."""
    import pyarrow as pa

    kind = _bare(kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            or is_text(kind)):  # fmt: skip
        raise _wrong_type(what, "numbers", kind, path)


def whole_or_text(kind: pa.DataType, what: str, path: str) -> str:
    """Return how relations and graph ids are kept."""
    import pyarrow as pa

    kind = _bare(kind)
    if not (pa.types.is_integer(kind) or is_text(kind)):
        raise _wrong_type(f"{what} column", "integers or strings", kind, path)
    return "int64" if pa.types.is_integer(kind) else "string"


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in what pyarrow raises."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet",
            got=next(iter(str(error).splitlines()), type(error).__name__),
            remedy="The file is damaged, or no Parquet: give --format if its name misleads",
        ) from error


def _check_names(names: Sequence[str], path: str) -> None:
    """Raise InputError where a name stands for several columns: none of them can be read by it."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{path} has {names.count(twice)} columns named {twice!r}",
            expected="a name a column",
            remedy="Rename them where the file is written",
        )


def _bare(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _rows_at_once(file: Any, groups: range, columns: Sequence[str]) -> int:
    rows = sum(file.metadata.row_group(g).num_rows for g in groups)
    size = sum(column_bytes(file.metadata, g, columns)[0] for g in groups)
    fixed = sum(_fixed_width(file.schema_arrow.field(name).type) for name in columns)
    # Dictionaries make strings look smaller than they are.
    width = max(size / max(rows, 1), fixed)
    return int(min(max(_BATCH_BYTES / max(width, 1), _LEAST_ROWS), BATCH_ROWS))


def _fixed_width(kind: pa.DataType) -> int:
    kind = _bare(kind)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 64  # of no fixed width: a guess on the safe side


def _wrong_type(what: str, expected: str, kind: pa.DataType, path: str) -> InputError:
    return InputError(
        f"the {what} of {path} cannot be read: the type is wrong", expected=expected, got=str(kind)
    )
