"""A piece of input becomes clean batches, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading import columns as convert
from penstock.pipelines.etl.reading.batch import Batch, Layout, Piece
from penstock.pipelines.etl.reading.check_rows import RowChecks, RowSource
from penstock.pipelines.etl.reading.columns import Fields
from penstock.pipelines.etl.reading.matrix import matrix_entries
from penstock.pipelines.etl.reading.pieces import needed_columns
from penstock.pipelines.etl.reading.times import inside_window, times
from penstock.workers.resources.device import frames

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.pipelines.etl.reading.text import TextBlock


def read_piece(piece: Piece, layout: Layout, options: EtlOptions) -> Iterator[Batch]:
    """Read a piece as batches of canonical columns, in the order of its rows.

    A row that cannot be used raises InputError with file and row, or is set aside, as
    ``options.on_bad_rows`` says. Memory is bounded, however large the piece.
    """
    if piece.format == "parquet":
        return _read_parquet(piece, layout, options)
    if piece.format == "npz":
        return _read_matrix(piece, layout, options)
    return _read_text(piece, layout, options)


def _read_parquet(piece: Piece, layout: Layout, options: EtlOptions) -> Iterator[Batch]:
    from penstock.pipelines.etl.reading import parquet, parquet_gpu

    roles = needed_columns(layout)
    names = list(dict.fromkeys(str(name) for name in roles.values()))
    with parquet.open_parquet(piece.path) as file:
        stop = file.metadata.num_row_groups if piece.stop < 0 else piece.stop
        before = sum(file.metadata.row_group(g).num_rows for g in range(piece.start))
        groups = range(piece.start, stop)
        # cuDF knows no fixed-size bytes, and other file systems are pyarrow's.
        if frames() and layout.id_type != "binary" and Path(piece.path).is_file():
            tables = parquet_gpu.read_row_groups(file.metadata, piece.path, groups, names)
        else:
            tables = parquet.read_row_groups(file, piece.path, groups, names)
        for found in tables:
            columns = {role: found[str(name)] for role, name in roles.items()}
            count = len(found[names[0]])
            rows = RowSource.of(piece.path, before + 1, found)
            yield _clean(columns, count, RowChecks(count), rows, layout, options)
            before += count


def _read_matrix(piece: Piece, layout: Layout, options: EtlOptions) -> Iterator[Batch]:
    import pyarrow as pa

    for part in matrix_entries(piece.path):
        found = {"row": pa.array(part.sources), "column": pa.array(part.targets)}
        columns = {"source": found["row"], "target": found["column"]}
        if layout.weight is not None:
            columns["weight"] = found["data"] = pa.array(part.data)
        rows = RowSource.of(piece.path, part.first + 1, found)
        count = len(part.sources)
        yield _clean(columns, count, RowChecks(count), rows, layout, options)


def _read_text(piece: Piece, layout: Layout, options: EtlOptions) -> Iterator[Batch]:
    from penstock.pipelines.etl.reading.text import Dialect, read_blocks

    positions = {
        role: layout.names.index(column) if isinstance(column, str) else column
        for role, column in needed_columns(layout).items()
    }
    slots = np.full(len(layout.names), -1, np.int32)
    for position in positions.values():
        if slots[position] < 0:
            slots[position] = slots.max() + 1
    dialect = Dialect.of(piece.format, layout.delimiter)
    first = piece.start == 0 and not layout.header
    lines: dict[str, int] = {}  # lines before the piece, counted when first asked for
    for block in read_blocks(piece, slots, dialect, header=layout.header):
        count = len(block.widths)
        checks = RowChecks(count)
        check_widths(block.widths, len(layout.names), checks)
        columns = {role: block.fields(slots[at]) for role, at in positions.items()}
        rows = RowSource(piece.path, partial(line_number, piece, block, lines), block.text)
        if first and count:
            _check_no_header(columns, layout, checks)
            first = False
        yield _clean(columns, count, checks, rows, layout, options)


def check_widths(widths: Array, expected: int, checks: RowChecks) -> None:
    """Mark text rows with too few or too many columns, or with wrong quotes."""
    from penstock.kernels.text_rules import AFTER_QUOTE, LONE_RETURN, OPEN_QUOTE

    if bool((widths == expected).all()):
        return
    from penstock.pipelines.etl.reading.text import CONVERT_RETURNS, RETURN_INSIDE

    checks.fail(widths == OPEN_QUOTE, "a quote is opened and never closed")
    checks.fail(widths == AFTER_QUOTE, "something follows a closing quote")
    remedy = f"{CONVERT_RETURNS}; --on-bad-rows skip leaves such rows out"
    checks.fail(widths == LONE_RETURN, RETURN_INSIDE, remedy)
    checks.fail(widths != expected, lambda row: f"{widths[row]} columns instead of {expected}")


def line_number(piece: Piece, block: TextBlock, before: dict[str, int], row: int) -> int:
    """Return a row's line in its file, counted from 1 as editors do."""
    from penstock.pipelines.etl.reading.text import lines_before, piece_begin

    if piece.start > 0 and piece.path not in before:
        before[piece.path] = lines_before(piece.path, piece_begin(piece))
    line: int = before.get(piece.path, 0) + block.first_line + int(block.lines[row]) + 1
    return line


def _clean(
    columns: dict[str, Fields | pa.Array],
    count: int,
    checks: RowChecks,
    rows: RowSource,
    layout: Layout,
    options: EtlOptions,
) -> Batch:
    """Convert columns to what batches hold; leave out bad rows and those outside the times."""
    clean: dict[str, Any] = {}
    for role in ("source", "target"):
        remedy = convert.TEXT_IDS
        clean[role] = convert.ids(columns[role], layout.id_type, role, checks, remedy=remedy)
        if f"{role}_type" in columns:
            clean[f"{role}_type"] = convert.types(columns[f"{role}_type"], f"{role} type", checks)
    if "weight" in columns:
        clean["weight"] = convert.weights(columns["weight"], checks)
    for role in ("relation", "graph"):
        if role in columns:
            kind = getattr(layout, f"{role}_type")
            clean[role] = convert.ids(columns[role], kind, role, checks)
    if "time" in columns:
        clean["time"] = times(columns["time"], layout.time_type, checks)
    bad, bad_count = checks.report(rows, options.on_bad_rows)
    keep = None if checks.bad is None else ~checks.bad
    filtered = 0
    if layout.since is not None or layout.until is not None:
        inside = inside_window(clean["time"], layout.since, layout.until)
        keep = inside if keep is None else inside & keep
        filtered = count - bad_count - int(keep.sum())
    return Batch(_table(clean, keep), bad, bad_count, filtered)


def _table(columns: dict[str, Any], keep: Array | None) -> pa.Table:
    import pyarrow as pa

    mask = None if keep is None else pa.array(keep)
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            arrays[name] = pa.array(values if keep is None else values[keep])
        else:
            arrays[name] = values if mask is None else values.filter(mask)
    return pa.table(arrays)


def _check_no_header(columns: dict[str, Fields], layout: Layout, checks: RowChecks) -> None:
    """Mark the first row of a file if it must be a header: words where numbers should be."""
    if layout.id_type not in ("int64", "uint64"):
        return
    texts = [columns[role].text(0).strip() for role in ("source", "target")]
    if all(text and text[0] not in "+-0123456789" for text in texts):
        mask = np.zeros(checks.count, bool)
        mask[0] = True
        checks.fail(
            mask, "the first row looks like a header, where ids should be integers",
            "Give --header yes if it is one, or --id-type string if ids are any text",
        )  # fmt: skip
