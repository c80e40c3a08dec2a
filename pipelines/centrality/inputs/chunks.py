"""Chunks of tables of edges: a row group of Parquet, or an IPC file, read by column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError
from penstock.pipelines.tables.columns import is_text
from penstock.pipelines.tables.parquet import naming
from penstock.pipelines.tables.types import bare_type

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 16
ROLES = ("graph", "source", "target", "weight")


@dataclass(frozen=True)
class ColumnNames:
    """The names of columns by role; weight: None where there are none or none are asked for.

    graph_type, node_type  how ids are read: int64, uint64 or string
    """

    graph: str
    source: str
    target: str
    weight: str | None
    graph_type: str
    node_type: str

    def names(self) -> list[str]:
        """Return the names of the columns that are read."""
        return [name for role in ROLES if (name := getattr(self, role)) is not None]


@dataclass(frozen=True)
class Chunk:
    """Rows that are read together: of a row group of Parquet, or of an IPC file (group -1).

    first  of an IPC file
    """

    path: str
    group: int
    rows: int
    first: int = 0

    @property
    def where(self) -> str:
        """What an error calls it."""
        return self.path if self.group < 0 else f"{self.path}, row group {self.group}"


@dataclass(frozen=True, eq=False)
class Survey:
    """The graphs of a chunk in the order of their first rows.

    ids      distinct; counts: (graphs,) int64, rows of each
    ordered  whether each graph's rows lie together
    too_many whether it has more graphs than are listed
    """

    ids: pa.Array
    counts: Array
    ordered: bool
    too_many: bool = False


def survey_chunks(chunks: list[Chunk], columns: ColumnNames, most: int) -> list[Survey]:
    """Survey chunks one after another; runs on a worker.

    most  graphs of a chunk that are listed at most
    """
    return [survey_chunk(chunk, columns, most) for chunk in chunks]


def survey_chunk(chunk: Chunk, columns: ColumnNames, most: int) -> Survey:
    """Say which graphs a chunk has, if these are ``most`` or fewer."""
    ids = read_columns(chunk, columns, [columns.graph], 0, chunk.rows)[columns.graph]
    if ids.null_count:
        row = chunk.first + int(np.argmax(np.asarray(ids.is_null()))) + 1
        raise InputError(
            f"{chunk.where}, row {row}: {columns.graph} is missing",
            got=f"{ids.null_count:,} such rows",
            remedy="Leave them out, or fill the column",
        )
    codes, values = coded(ids)
    at, lengths = run_lengths(codes)
    _, first, which = np.unique(codes[at], return_index=True, return_inverse=True)
    ordered = len(first) == len(at)
    if len(first) > most and not ordered:
        return Survey(ids.chunk(0).slice(0, 0), np.empty(0, np.int64), False, too_many=True)
    order = np.argsort(first)
    counts = np.bincount(which, weights=lengths, minlength=len(first)).astype(np.int64)[order]
    found = codes[at][first[order]]
    return Survey(decoded(found, values, columns.graph_type), counts, ordered)


def run_lengths(values: Array) -> tuple[Array, Array]:
    """Return where equal values that follow each other begin, and how many they are."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    return at, np.diff(np.concatenate([at, [len(values)]]))


def coded(ids: pa.ChunkedArray) -> tuple[Array, pa.Array | None]:
    """Return ids as int64: themselves, or positions in the distinct strings that are returned, too.

    No id may be null.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(ids.type):
        return _signed(as_numpy(ids)), None
    if ids.num_chunks > 1:
        ids = ids.unify_dictionaries()
    if not ids.num_chunks:
        return np.empty(0, np.int64), pa.array([], ids.type.value_type)
    codes = np.concatenate([as_numpy(part.indices) for part in ids.chunks])
    return codes.astype(np.int64, copy=False), ids.chunk(0).dictionary


def decoded(codes: Array, values: pa.Array | None, kind: str) -> pa.Array:
    """Return the ids that ``coded`` has made int64; kind: how ids are read."""
    if values is not None:
        return values.take(as_arrow(codes))
    return as_arrow(codes.view(np.uint64) if kind == "uint64" else codes)


def _signed(numbers: Array) -> Array:
    """Return integers as int64; those beyond its range as what has the same bits."""
    if numbers.dtype == np.uint64:
        return numbers.view(np.int64)
    return numbers.astype(np.int64, copy=False)


def read_columns(
    chunk: Chunk, columns: ColumnNames, names: list[str], low: int, high: int
) -> dict[str, pa.ChunkedArray]:
    """Return the rows ``low .. high`` of columns of a chunk; strings as dictionaries."""
    import pyarrow as pa

    with naming(chunk.where, "a table", "not what its name says"):
        if chunk.group < 0:
            with pa.memory_map(chunk.path) as file:
                whole = pa.ipc.open_file(file).read_all().select(names)
            table = whole.slice(chunk.first + low, high - low)
        else:
            table = _row_group(chunk, columns, names, low, high)
        return {name: _as_read(table.column(name), columns, name) for name in names}


def _row_group(
    chunk: Chunk, columns: ColumnNames, names: list[str], low: int, high: int
) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = file_metadata(chunk.path)
    words = [name for name in names if _is_word(columns, name)]
    options: dict[str, Any] = {"metadata": metadata, "memory_map": True, "read_dictionary": words}
    with pq.ParquetFile(chunk.path, **options) as file:
        if chunk.rows <= 2 * (high - low):  # in one call: each waits for the GIL when it returns
            table = file.read_row_group(chunk.group, columns=names, use_threads=False)
            return table.slice(low, high - low)
        # Pages behind the last row are not decoded.
        parts, at = [], 0
        size = min(max(high - low, 1024), _BATCH_ROWS) if low == 0 else _BATCH_ROWS
        for batch in file.iter_batches(
            size, row_groups=[chunk.group], columns=names, use_threads=False
        ):
            first, stop = max(low - at, 0), min(high - at, len(batch))
            if first < stop:
                parts.append(batch.slice(first, stop - first))
            at += len(batch)
            if at >= high:
                break
        return pa.Table.from_batches(parts)


def _is_word(columns: ColumnNames, name: str) -> bool:
    kind = columns.graph_type if name == columns.graph else columns.node_type
    return kind == "string" and name != columns.weight


def _as_read(column: pa.ChunkedArray, columns: ColumnNames, name: str) -> pa.ChunkedArray:
    """Return ids as integers, or as dictionaries of strings where all of the input's are."""
    import pyarrow as pa

    if name == columns.weight:
        return column
    kind = columns.graph_type if name == columns.graph else columns.node_type
    if kind == "string":
        if column.type == pa.dictionary(pa.int32(), pa.string()):
            return column
        return column.cast(pa.string()).dictionary_encode()
    # Files may have integers of several widths.
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    wanted = pa.uint64() if kind == "uint64" else pa.int64()
    return column if column.type == wanted else column.cast(wanted)


# -- Parquet ------------------------------------------------------------------------------------


def file_metadata(path: str) -> Any:
    """Return the metadata of a Parquet file, read once a process."""
    found = Path(path).stat()
    return _metadata(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _metadata(path: str, size: int, changed: int) -> Any:
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


def parquet_chunks(path: str) -> tuple[pa.Schema, list[Chunk]]:
    """Return the schema of a Parquet file, and its row groups."""
    metadata = file_metadata(path)
    groups = range(metadata.num_row_groups)
    chunks = [Chunk(path, group, metadata.row_group(group).num_rows) for group in groups]
    return metadata.schema.to_arrow_schema(), chunks


def ipc_chunks(path: str) -> tuple[pa.Schema, list[Chunk]]:
    """Return the schema of an Arrow IPC file, and its batches."""
    import pyarrow as pa

    chunks, first = [], 0
    with pa.memory_map(path) as mapped:
        file = pa.ipc.open_file(mapped)
        for number in range(file.num_record_batches):
            rows = file.get_batch(number).num_rows
            chunks.append(Chunk(path, -1, rows, first))
            first += rows
        return file.schema, chunks


def type_of(kind: Any, path: str, name: str) -> str:
    """Return how ids of an Arrow type are read: int64, uint64 or string."""
    import pyarrow as pa

    kind = bare_type(kind)
    if pa.types.is_integer(kind):
        return "uint64" if kind == pa.uint64() else "int64"
    if is_text(kind):
        return "string"
    raise InputError(
        f"the column {name} of {path} holds no ids", expected="integers or strings", got=str(kind)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of what a library says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
