"""A piece of a table of edges becomes clean batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import as_arrow
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Batch, Layout
from penstock.pipelines.etl.reading.pieces import needed_columns
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.rows import Column, RowChecks, RowSource
from penstock.pipelines.tables.times import inside_window, times


def read_piece(piece: Piece, layout: Layout, options: EtlOptions) -> Iterator[Batch]:
    """Read a piece as batches of canonical columns, in the order of its rows.

    ``options.on_bad_rows`` decides whether a row that cannot be used raises InputError with file
    and row, or is set aside. Memory is bounded for a piece of any size.
    """
    if piece.format == "tu":
        from penstock.pipelines.etl.zoos.tu import read_tu

        yield read_tu(piece.path, layout)
        return
    roles = needed_columns(layout)
    first = piece.start == 0 and not layout.header
    for rows in read_rows(piece, _kinds(roles, layout), layout.shape):
        columns = {role: rows.columns[column] for role, column in roles.items()}
        if first:
            _check_no_header(columns, layout, rows.checks)
            first = False
        if piece.format == "json" and "weight" in columns:  # as NetworkX has it
            weight = columns["weight"]
            columns["weight"] = convert.filled(weight, convert.nulls_of(weight), 1)
        gaps = [np.zeros(len(rows), bool)] * 2
        if "graph" in columns:  # a row with one end is a node, a row with none a graph
            text = piece.format not in ("parquet", "arrow", "json")
            gaps = [convert.gaps_of(columns[end], text=text) for end in ("source", "target")]
        yield _clean(columns, gaps, rows.checks, rows.source, layout, options)


def spill_piece(
    piece: Piece,
    layout: Layout,
    options: EtlOptions,
    folder: Path,
    *,
    keep: Callable[[pa.Table, Path, EtlOptions], tuple[dict[str, Any], set[Any]]],
) -> dict[str, Any]:
    """Read a piece, and keep its batches in ``folder/000``, ...; a step for ``once``.

    keep  leaves a batch in a folder; returns what later steps must know, as JSON, and relations
    """

    def make(folder: Path) -> dict[str, Any]:
        result: dict[str, Any] = {"rows": [], "kept": []}
        bad, relations, result["bad_count"], result["filtered"] = list[Any](), set[Any](), 0, 0
        for number, batch in enumerate(read_piece(piece, layout, options)):
            (folder / f"{number:03d}").mkdir()
            kept, named = keep(batch.table, folder / f"{number:03d}", options)
            relations |= named
            result["kept"].append(kept)
            result["rows"].append(batch.table.num_rows)
            bad += map(vars, batch.bad)
            result["bad_count"] += batch.bad_count
            result["filtered"] += batch.filtered
            del batch  # before the next is read
        return result | {"bad": bad[:10], "relations": sorted(relations)}

    return spill.once(folder, make)


def _kinds(roles: Mapping[str, Column], layout: Layout) -> dict[Column, str]:
    """Return the type to read each column as; a column with several roles is read as text."""
    kinds = {
        "source": layout.id_type,
        "target": layout.id_type,
        "weight": "float64",
        "relation": layout.relation_type,
        "graph": layout.graph_type,
        "time": "string" if layout.time_type == "timestamp" else layout.time_type,
    }
    found: dict[Column, str] = {}
    for role, column in roles.items():
        kind = kinds.get(role, "string")
        found[column] = kind if found.get(column, kind) == kind else "string"
    return found


def _clean(
    columns: dict[str, pa.Array],
    gaps: list[Array],
    checks: RowChecks,
    rows: RowSource,
    layout: Layout,
    options: EtlOptions,
) -> Batch:
    """Convert columns to those of batches; leave out bad rows and rows outside the times."""
    clean: dict[str, Any] = {}
    for role, missing in zip(("source", "target"), gaps, strict=True):
        remedy = convert.TEXT_IDS
        column = convert.filled(columns[role], missing, 0)
        found = convert.ids(column, layout.id_type, role, checks, remedy=remedy)
        clean[role] = convert.with_gaps(found, missing)
        if f"{role}_type" in columns:
            clean[f"{role}_type"] = convert.types(columns[f"{role}_type"], f"{role} type", checks)
    if "graph" in columns:
        clean["graph"] = convert.ids(columns["graph"], layout.graph_type, "graph", checks)
    alone = gaps[0] | gaps[1]
    own = RowChecks(checks.count)  # problems of columns that only edges have
    if "weight" in columns:
        weight = columns["weight"]
        if layout.lengths:
            clean["weight"] = convert.floats(weight, "weight", own, missing=None)
        else:
            clean["weight"] = convert.weights(weight, own)
    if "relation" in columns:
        found = convert.ids(columns["relation"], layout.relation_type, "relation", own)
        clean["relation"] = convert.with_gaps(found, alone)
    if "time" in columns:
        clean["time"] = times(columns["time"], layout.time_type, own)
    checks.take(own, except_for=alone)
    bad, bad_count = checks.report(rows, options.on_bad_rows)
    keep = None if checks.bad is None else ~checks.bad
    filtered = 0
    if layout.since is not None or layout.until is not None:
        inside = inside_window(clean["time"], layout.since, layout.until)
        keep = inside if keep is None else inside & keep
        filtered = checks.count - bad_count - int(keep.sum())
    return Batch(table_of(clean, keep), bad, bad_count, filtered)


def table_of(columns: dict[str, Any], keep: Array | None) -> pa.Table:
    """Return columns of NumPy or Arrow as a table of the rows that ``keep`` marks (None: all)."""
    mask = None if keep is None else pa.array(keep)
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            arrays[name] = as_arrow(values if keep is None else values[keep])
        else:
            arrays[name] = values if mask is None else values.filter(mask)
    return pa.table(arrays)


def _check_no_header(columns: dict[str, pa.Array], layout: Layout, checks: RowChecks) -> None:
    """Mark the first row of a file if it must be a header: words where numbers should be."""
    ends = columns["source"], columns["target"]
    if layout.id_type not in ("int64", "uint64") or not all(convert.is_text(e.type) for e in ends):
        return
    texts = [(end[0].as_py() or "").strip() for end in ends]
    if all(text and text[0] not in "+-0123456789" for text in texts):
        mask = np.zeros(checks.count, bool)
        mask[0] = True
        checks.fail(
            mask,
            "the first row looks like a header, but ids should be integers",
            "Give --header yes if it is one, or --id-type string if ids are any text",
        )
