"""The input in pieces of about equal size, one per task, in an order that never changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.errors import InputError
from penstock.pipelines.etl.options import EtlOptions, asked_columns
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.etl.reading.layout import KNOWN, schema_types
from penstock.pipelines.tables.arrow import open_arrow
from penstock.pipelines.tables.edge_lists import graph_names, list_pieces
from penstock.pipelines.tables.parquet import open_parquet
from penstock.pipelines.tables.pieces import (
    TARGET,
    Piece,
    batch_pieces,
    byte_range_pieces,
    row_group_pieces,
)
from penstock.pipelines.tables.sample import first_lines, first_rows, names_columns
from penstock.pipelines.tables.sources import (
    codec_of,
    file_name,
    file_size,
    find_files,
    table_format,
)
from penstock.pipelines.tables.split import Dialect

LEAST = 4 << 20  # bytes of a piece: a few of them keep all threads of a laptop reading
_PIECES = 8


def find_pieces(
    paths: Sequence[str],
    kind: str,
    layout: Layout,
    options: EtlOptions,
    target_bytes: int | None = None,
) -> list[Piece]:
    """Return the pieces of every file, by path and then by position.

    Files whose schemas or headers disagree with ``layout`` are reported now.

    target_bytes  of a piece; None: small files are cut as well, for several threads
    """
    files = find_files(paths, None if kind == "tu" else kind)
    if target_bytes is None:
        target_bytes = min(TARGET, max(LEAST, sum(map(file_size, files)) // _PIECES))
    found: list[Piece] = []
    if kind == "tu":
        return [Piece(paths[0], kind, bytes=sum(map(file_size, files)))]
    if kind == "edgelists":
        found += list_pieces(files, graph_names(files, paths), target_bytes)
        files = []
    several = len(files) > 1
    for path in files:
        table = table_format(path, kind)
        if table == "parquet":
            found += _row_groups(path, layout, options, target_bytes)
        elif table == "arrow":
            found += _batches(path, layout, options, target_bytes)
        elif table == "json":
            whole, size = codec_of(path) is not None, file_size(path)
            names = (file_name(path),) if several else ()
            parts = byte_range_pieces(path, table, size, target_bytes, whole=whole)
            found += [replace(part, names=names) for part in parts]
        elif table == "npz":
            found.append(Piece(path, table, bytes=file_size(path)))
        else:
            found += _byte_ranges(path, table, layout, options, target_bytes)
    if not found:
        raise InputError(
            f"every input is empty: {', '.join(paths[:3])}", remedy="Check what wrote the input"
        )
    return [replace(piece, number=number) for number, piece in enumerate(found)]


def needed_columns(layout: Layout) -> dict[str, str | int]:
    """Return the column of each role, by canonical name."""
    return {role: column for role in KNOWN if (column := getattr(layout, role)) is not None}


def _row_groups(path: str, layout: Layout, options: EtlOptions, target: int) -> Iterator[Piece]:
    columns = [str(name) for name in needed_columns(layout).values()]
    with open_parquet(path) as file:
        _check_schema(path, file.schema_arrow, layout, options)
        yield from row_group_pieces(path, file.metadata, columns, target)


def _batches(path: str, layout: Layout, options: EtlOptions, target: int) -> Iterator[Piece]:
    with open_arrow(path) as file:
        _check_schema(path, file.schema, layout, options)
        yield from batch_pieces(path, file.num_record_batches, file_size(path), target)


def _byte_ranges(
    path: str, kind: str, layout: Layout, options: EtlOptions, target: int
) -> Iterator[Piece]:
    head = first_lines(path, kind)
    if not head:
        return
    dialect = Dialect.of(kind, layout.delimiter)
    _check_header(path, head, dialect, layout, options)
    # A quoted value may hold a newline, so a file with quotes cannot be cut at any byte. Quotes
    # around the names alone do not count: some programs always write them.
    values = head.split(b"\n", 1)[-1] if layout.header else head
    whole = codec_of(path) is not None or (dialect.quote and b'"' in values)
    yield from byte_range_pieces(path, kind, file_size(path), target, whole=whole)


def _check_schema(path: str, schema: object, layout: Layout, options: EtlOptions) -> None:
    columns = needed_columns(layout)
    names: list[str] = schema.names  # type: ignore[attr-defined]
    missing = [str(name) for name in columns.values() if name not in names]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}, which other files have",
            got=f"columns {', '.join(names[:20])}",
            remedy="Give all files the same columns, or convert them apart",
        )
    types = {role: schema.field(name).type for role, name in columns.items()}  # type: ignore[attr-defined]
    own = schema_types(layout, types, options, path)
    for what in ("id_type", "time_type", "relation_type", "graph_type"):
        first, here = getattr(layout, what), getattr(own, what)
        # Files may store the same uint64 ids in int64 columns, and the reverse.
        if first != here and {first, here} != {"int64", "uint64"}:
            raise InputError(
                f"{path} has other types of columns than the first file",
                expected=f"{what.replace('_', ' ')} {first}",
                got=here,
                remedy="Write all files with the same types"
                + (", or give --id-type string" if what == "id_type" else ""),
            )


def _check_header(
    path: str, head: bytes, dialect: Dialect, layout: Layout, options: EtlOptions
) -> None:
    rows = first_rows(head, dialect, 1)
    if not layout.header:
        known = KNOWN["source"], KNOWN["target"]
        if (
            rows
            and options.header == "auto"
            and names_columns(rows[0], asked_columns(options), *known)
        ):
            raise InputError(
                f"{path}, row 1: a header, where the first file has none",
                got=" ".join(rows[0]),
                remedy="Give all files the same header line",
            )
        return
    names = tuple(name.strip() for name in rows[0]) if rows else ()
    if names and names[0].startswith("#"):
        names = (names[0].removeprefix("#").strip(), *names[1:])
    if names and names != layout.names:
        raise InputError(
            f"{path}, row 1: the header differs from that of the first file",
            expected=",".join(layout.names),
            got=",".join(names),
            remedy="Give all files the same header line",
        )
