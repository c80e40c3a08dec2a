"""The table of nodes: ids, labels, splits and features, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.etl.nodes.coded import FeatureCoder
from penstock.pipelines.etl.nodes.columns import NodeLayout, splits_of
from penstock.pipelines.etl.nodes.labels import labels_of
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Batch
from penstock.pipelines.etl.reading.read import table_of
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows, schema_with_rows
from penstock.pipelines.tables.rows import Column, Rows
from penstock.pipelines.tables.sample import take_sample
from penstock.pipelines.tables.sources import find_files, format_of
from penstock.pipelines.tables.text import TextShape

NODE_TABLES = {"parquet", "arrow", "csv", "tsv"}


def read_nodes(
    options: EtlOptions, id_type: str, coder: FeatureCoder
) -> Iterator[tuple[Batch, Array | None]]:
    """Read the node table with ids of the type that edges have; features as ``coder`` codes them.

    Columns of a batch, those that exist:

    id     of the edges' id type
    row    int64: number of the row in the table, from 0, over all its files; rows of a file of
           features have the same numbers
    label  int64, float64, string, bool or lists of those; null without a label
    split  int8: 0 train, 1 valid, 2 test, -1 none
    type   string
    """
    path = str(options.nodes)
    formats = NODE_TABLES & {format_of(file) for file in find_files([path])}
    if len(formats) != 1:
        raise InputError(
            f"{path} cannot be a node table",
            expected="a .parquet, .arrow, .csv or .tsv file",
            got=" and ".join(sorted(map(str, formats))) or Path(path).name,
        )
    kind = str(formats.pop())
    seen = 0
    names: tuple[str, ...] | None = None
    for file in find_files([path], kind):
        layout, shape = _layout_of(file, kind, id_type, options, coder)
        if layout is None:
            continue
        layout = layout.ordered_as(names, file)
        for rows in read_rows(Piece(file, kind), _kinds(layout, id_type, coder), shape):
            names = names or layout.feature_names
            coder.named = names is not None
            yield _clean(rows, layout, id_type, seen, options, coder)
            seen += len(rows)


def _layout_of(
    path: str, kind: str, id_type: str, options: EtlOptions, coder: FeatureCoder
) -> tuple[NodeLayout | None, TextShape]:
    """Return the columns of a file (None if it is empty) and the layout of a text."""
    if kind in ("parquet", "arrow"):
        schema = schema_with_rows(path, kind)
        layout = schema and NodeLayout.of_schema(path, schema, id_type, options, coder.known)
        return layout, TextShape((), "")
    if id_type == "binary":
        raise InputError(
            f"the ids of {path} are text, those of the edges are bytes",
            remedy="Write the node table as Parquet, with ids of the edges' type",
        )
    sample = take_sample(path, kind, options.delimiter)
    if not sample.rows:
        return None, TextShape((), "")
    layout = NodeLayout.of_sample(sample, options, coder.known)
    if len(sample.rows) > layout.header:
        for name, column in zip(layout.feature_columns(), layout.features, strict=True):
            texts = pa.array(sample.column(int(column), header=layout.header), pa.string())
            coder.look(name, texts, path)
    return layout, TextShape(layout.names, sample.delimiter, layout.header)


def _kinds(layout: NodeLayout, id_type: str, coder: FeatureCoder) -> dict[Column, str]:
    """Return the type to read each column as: a number becomes a float if it has no other role."""
    others = (layout.label, layout.split, layout.type)
    kinds: dict[Column, str] = {}
    for column, name in zip(layout.features, layout.feature_columns(), strict=True):
        known = coder.columns.get(name)
        number = known is None or known.kind in (None, "number")
        kinds[column] = "float64" if number else "string"
    kinds[layout.id] = "string" if layout.id in kinds else id_type
    return kinds | {column: "string" for column in others if column is not None}


def _clean(
    rows: Rows,
    layout: NodeLayout,
    id_type: str,
    first: int,
    options: EtlOptions,
    coder: FeatureCoder,
) -> tuple[Batch, Array | None]:
    """Convert the columns of some rows; leave out the bad ones."""
    found, checks = rows.columns, rows.checks
    remedy, features = convert.TEXT_IDS, None
    clean: dict[str, Any] = {
        "id": convert.ids(found[layout.id], id_type, "node id", checks, remedy=remedy),
        "row": np.arange(first, first + checks.count),
    }
    if layout.type is not None:
        clean["type"] = convert.types(found[layout.type], "node type", checks)
    if layout.label is not None:
        marker = options.label_missing
        clean["label"] = labels_of(found[layout.label], layout.label_type, checks, marker)
    if layout.split is not None:
        clean["split"] = splits_of(found[layout.split], checks)
    if layout.features:
        wanted = [found[column] for column in layout.features]
        features = coder.code(layout.feature_columns(), wanted, checks, rows.source.path)
    bad, bad_count = checks.report(rows.source, options.on_bad_rows)
    keep = None if checks.bad is None else ~checks.bad
    if features is not None and keep is not None:
        features = features[keep]
    return Batch(table_of(clean, keep), bad, bad_count), features
