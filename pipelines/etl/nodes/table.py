"""The table of nodes: ids, labels, splits and features, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.etl.nodes.coded import FeatureCoder
from penstock.pipelines.etl.nodes.columns import NodeLayout, splits_of
from penstock.pipelines.etl.nodes.features import open_features
from penstock.pipelines.etl.nodes.labels import labels_of
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows, schema_with_rows
from penstock.pipelines.tables.rows import BadRow, Column, Rows
from penstock.pipelines.tables.sample import take_sample
from penstock.pipelines.tables.sources import find_files, format_of
from penstock.pipelines.tables.text import TextShape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NodeBatch", "open_features", "read_nodes"]


@dataclass(frozen=True)
class NodeBatch:
    """Some clean rows of the node table, the bad ones set aside.

    id        (n,) of the edges' id type, as in Batch
    type      (n,) strings as a dictionary; None: all have the same type, or none
    rows      (n,) int64: numbers of these rows in the table, from 0, over all its files; rows of
              a file of features have the same numbers
    label     (n,) int64, float64, string, bool or lists of those; null without a label
    split     (n,) int8: 0 train, 1 valid, 2 test, -1 none
    features  (n, columns): finite in 32 bits, or NaN if some may be missing
    coder     made these codes; columns in the order of the first file
    """

    id: pa.Array
    rows: Array
    label: pa.Array | None = None
    split: Array | None = None
    features: Array | None = None
    bad: tuple[BadRow, ...] = ()
    bad_count: int = 0
    coder: FeatureCoder | None = None
    type: pa.DictionaryArray | None = None


def read_nodes(path: str | Path, options: EtlOptions, id_type: str) -> Iterator[NodeBatch]:
    """Read the node table ``path`` (a file or a folder) with ids of the type that edges have."""
    known = {"parquet", "arrow", "csv", "tsv"}
    formats = known & {format_of(file) for file in find_files([str(path)])}
    if len(formats) != 1:
        raise InputError(
            f"{path} cannot be a node table",
            expected="a .parquet, .arrow, .csv or .tsv file",
            got=" and ".join(sorted(map(str, formats))) or Path(path).name,
        )
    kind = str(formats.pop())
    files = find_files([str(path)], kind)
    seen = 0
    names: tuple[str, ...] | None = None
    coder = FeatureCoder(options)
    for file in files:
        layout, shape = _layout_of(file, kind, id_type, options, coder)
        if layout is None:
            continue
        layout = layout.ordered_as(names, file)
        for rows in read_rows(Piece(file, kind), _kinds(layout, id_type, coder), shape):
            names = names or layout.feature_names
            coder.named = names is not None
            yield _clean(rows, layout, id_type, seen, options, coder)
            seen += len(rows)
    if seen == 0:
        raise InputError(f"the node table {path} is empty", remedy="Check what wrote it")


def _layout_of(
    path: str, kind: str, id_type: str, options: EtlOptions, coder: FeatureCoder
) -> tuple[NodeLayout | None, TextShape]:
    """Return the columns of a file (None if it is empty) and the layout of a text."""
    import pyarrow as pa

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
) -> NodeBatch:
    """Convert the columns of some rows; leave out the bad ones."""
    import pyarrow as pa

    found, checks = rows.columns, rows.checks
    remedy = convert.TEXT_IDS
    ids = pa.array(convert.ids(found[layout.id], id_type, "node id", checks, remedy=remedy))
    label = split = features = types = None
    if layout.type is not None:
        types = convert.types(found[layout.type], "node type", checks)
    if layout.label is not None:
        marker = options.label_missing
        label = labels_of(found[layout.label], layout.label_type, checks, marker)
    if layout.split is not None:
        split = splits_of(found[layout.split], checks)
    if layout.features:
        wanted = [found[column] for column in layout.features]
        features = coder.code(layout.feature_columns(), wanted, checks, rows.source.path)
    bad, bad_count = checks.report(rows.source, options.on_bad_rows)
    numbers = np.arange(first, first + checks.count)
    if checks.bad is not None:
        keep = ~checks.bad
        mask = pa.array(keep)
        ids, numbers = ids.filter(mask), numbers[keep]
        label, types = (a if a is None else a.filter(mask) for a in (label, types))
        split, features = (a if a is None else a[keep] for a in (split, features))
    coded = None if types is None else types.dictionary_encode()
    return NodeBatch(ids, numbers, label, split, features, bad, bad_count, coder, coded)
