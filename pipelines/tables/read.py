"""A piece of a table in any format becomes rows of named columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.arrow import one_array
from penstock.errors import InputError
from penstock.pipelines.tables import parquet, parquet_gpu
from penstock.pipelines.tables.arrow import count_rows, open_arrow, read_batches
from penstock.pipelines.tables.edge_lists import read_lists
from penstock.pipelines.tables.json_graphs import read_json
from penstock.pipelines.tables.matrix import read_entries
from penstock.pipelines.tables.parquet import open_parquet
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.rows import Column, Rows
from penstock.pipelines.tables.sample import take_sample
from penstock.pipelines.tables.sources import find_files, format_of, open_stream
from penstock.pipelines.tables.text import TextShape, read_text, without_mark
from penstock.workers.resources.device import frames


def read_rows(piece: Piece, columns: Mapping[Column, str], shape: TextShape) -> Iterator[Rows]:
    """Read columns of a piece, a bounded number of rows at a time, in the order of the rows.

    columns  the types to read, by name: int64, uint64, float64, string, binary or list. Text that
             cannot be read as its type becomes strings; other files keep their types.
    shape    of text files
    """
    if piece.format == "parquet":
        return _read_parquet(piece, columns)
    if piece.format == "arrow":
        return _read_arrow(piece, columns)
    if piece.format == "json":
        return read_json(piece, columns, directed=shape.directed)
    if piece.format == "edgelists":
        return read_lists(piece, shape, columns)
    if piece.format == "npz":
        return read_entries(piece.path, [str(name) for name in columns])
    return read_text(piece, shape, columns)


def read_columns(source: str, wanted: Sequence[str], *, first: bool = False) -> dict[str, pa.Array]:
    """Return the wanted columns that a table has, completely; a bad row is an error.

    Text has a header. With ``first``, the first column is taken if the first wanted name is
    missing.
    """
    found: dict[str, list[pa.Array]] = {}
    for path in find_files([source]):
        kind, shape, lists = format_of(path), TextShape((), ""), frozenset[str]()
        if kind in ("parquet", "arrow"):
            schema = schema_with_rows(path, kind)
            if schema is None:
                continue
            names = tuple(schema.names)
            lists = frozenset(field.name for field in schema if pa.types.is_nested(field.type))
        else:
            kind = "tsv" if kind == "tsv" else "csv"
            sample = take_sample(path, kind, None)
            names = tuple(name.strip() for name in sample.rows[0]) if sample.rows else ()
            shape = TextShape(names, sample.delimiter, header=True)
        columns = {name: name for name in wanted if name in names}
        if first and wanted[0] not in names and names and names[0] not in columns:
            columns[names[0]] = wanted[0]
        if not columns:
            raise InputError(
                f"{path} has none of the columns {', '.join(wanted)}", got=", ".join(names)
            )
        kinds: dict[Column, str] = {name: "list" if name in lists else "string" for name in columns}
        for rows in read_rows(Piece(path, kind), kinds, shape):
            rows.checks.report(rows.source, "error")
            for name, known in columns.items():
                found.setdefault(known, []).append(rows.columns[name])
    return {name: one_array(pa.chunked_array(arrays)) for name, arrays in found.items()}


def read_ids(path: str) -> pa.Array:
    """Return the ids of a file: the first column of Parquet or Arrow IPC, or one per line."""
    kind = format_of(path) or ""
    if kind in ("parquet", "arrow"):
        schema = schema_with_rows(path, kind)
        if schema is None or not schema.names:
            raise InputError(f"{path} has no ids", expected="ids in the first column")
        name = schema.names[0]
        if pa.types.is_nested(schema.types[0]):
            raise InputError(f"{path} has no ids", expected="ids, not lists, in the first column")
        read = read_rows(Piece(path, kind), {name: "string"}, TextShape((), ""))
        return pa.concat_arrays([rows.columns[name] for rows in read])
    with open_stream(path) as file:
        data = without_mark(file.read(), path)
    try:
        # Not splitlines, which also cuts at characters that may be part of an id.
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"cannot read {path}", expected="text in UTF-8, one id per line", got=str(error)
        ) from error
    lines = [line.removesuffix("\r") for line in lines]
    return pa.array(lines[:-1] if lines and not lines[-1] else lines, pa.string())


def schema_with_rows(path: str, table: str) -> pa.Schema | None:
    """Return the schema of a Parquet or Arrow IPC file; None if it has no rows."""
    if table == "parquet":
        with open_parquet(path) as file:
            return file.schema_arrow if file.metadata.num_rows else None
    with open_arrow(path) as file:
        numbers = range(file.num_record_batches)
        return file.schema if any(file.get_batch(n).num_rows for n in numbers) else None


def _read_parquet(piece: Piece, columns: Mapping[Column, str]) -> Iterator[Rows]:
    names = [str(name) for name in columns]
    with parquet.open_parquet(piece.path) as file:
        stop = file.metadata.num_row_groups if piece.stop < 0 else piece.stop
        before = sum(file.metadata.row_group(g).num_rows for g in range(piece.start))
        groups = range(piece.start, stop)
        # cuDF cannot read fixed-size bytes; pyarrow reads other file systems.
        plain = not {"binary", "list"}.intersection(columns.values())
        if frames() and plain and Path(piece.path).is_file():
            tables = parquet_gpu.read_row_groups(file.metadata, piece.path, groups, names)
        else:
            tables = parquet.read_row_groups(file, piece.path, groups, names)
        for found in tables:
            rows = Rows.of(piece.path, before, found)
            yield rows
            before += len(rows)


def _read_arrow(piece: Piece, columns: Mapping[Column, str]) -> Iterator[Rows]:
    names, done = [str(name) for name in columns], 0
    for found in read_batches(piece.path, piece.start, piece.stop, names):
        # Counted only if a row is bad.
        rows = Rows.of(piece.path, partial(count_rows, piece.path, piece.start, done), found)
        yield rows
        done += len(rows)
