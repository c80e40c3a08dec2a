"""Parquet files: their types in our terms, and their rows a few row groups at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.pipelines.etl.batch import BATCH_ROWS
from penstock.pipelines.etl.inputs import open_file

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 1 << 26
_LEAST_ROWS = 1 << 14


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Open a Parquet file, or say that it is none; errors while it is read name it too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(path) as raw:
        try:
            with pq.ParquetFile(raw) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{path} cannot be read as Parquet",
                got=str(error).splitlines()[0],
                remedy="The file is damaged or has another format; give --format if its name misleads",
            ) from error


def read_row_groups(
    file: Any, groups: range, columns: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Read columns of some row groups, a bounded number of rows at a time."""
    rows = _rows_at_once(file, groups, columns)
    batches = file.iter_batches(
        batch_size=rows, row_groups=list(groups), columns=list(columns), use_threads=False
    )
    for batch in batches:
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


def id_type(source: pa.DataType, target: pa.DataType, path: str) -> str:
    """Return the type that ids of both columns fit: integers stay integers, bytes bytes."""
    kinds = {_id_kind(source, path), _id_kind(target, path)}
    if len(kinds) == 1:
        return kinds.pop()
    return "uint64" if kinds == {"int64", "uint64"} else "string"


def time_type(kind: pa.DataType, path: str) -> str:
    """Return how a time column is kept."""
    import pyarrow as pa

    kind = _bare(kind)
    if pa.types.is_integer(kind):
        return "int64"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float64"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or _is_text(kind):
        return "timestamp"
    raise _wrong_type("time", "integers, floats, timestamps, dates or ISO texts", kind, path)


def need_number(kind: pa.DataType, what: str, path: str) -> None:
    """Raise InputError unless a column can hold numbers."""
    import pyarrow as pa

    kind = _bare(kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            or _is_text(kind)):  # fmt: skip
        raise _wrong_type(what, "numbers", kind, path)


def whole_or_text(kind: pa.DataType) -> str:
    """Return how relations and graph ids are kept."""
    import pyarrow as pa

    return "int64" if pa.types.is_integer(_bare(kind)) else "string"


def _id_kind(kind: pa.DataType, path: str) -> str:
    import pyarrow as pa

    kind = _bare(kind)
    if pa.types.is_uint64(kind):
        return "uint64"
    # pandas turns integers among which one is missing into floats.
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "int64"
    if _is_text(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "string"
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or (
        pa.types.is_large_binary(kind)
    ):
        return "binary"
    raise _wrong_type("node ids", "integers, strings or bytes", kind, path)


def _bare(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)
                or pa.types.is_string_view(kind) or pa.types.is_null(kind))  # fmt: skip


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
    return InputError(f"the {what} of {path} have the wrong type", expected=expected, got=str(kind))
