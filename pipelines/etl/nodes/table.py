"""The table of nodes: ids, labels, splits and features, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.etl.nodes.columns import NodeLayout, features_of, splits_of
from penstock.pipelines.etl.nodes.features import open_features
from penstock.pipelines.etl.nodes.labels import labels_of
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading import columns as convert
from penstock.pipelines.etl.reading.batch import BadRow, Piece
from penstock.pipelines.etl.reading.check_rows import RowChecks, RowSource
from penstock.pipelines.etl.reading.inputs import find_files, format_of
from penstock.pipelines.etl.reading.read import check_widths, line_number

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NodeBatch", "open_features", "read_nodes"]


@dataclass(frozen=True)
class NodeBatch:
    """Some clean rows of the node table, the bad ones set aside.

    id        (n,) of the edges' id type, as in Batch
    type      (n,) strings as a dictionary; None: all have the same, or none
    rows      (n,) int64: which rows of the table these are, from 0, over all its files; the
              rows of a file of features go by it
    label     (n,) int64, float64, string, bool or lists of those; null without a label
    split     (n,) int8: 0 train, 1 valid, 2 test, -1 none
    features  (n, F) float32, finite, or NaN where some may be missing
    feature_names  those of the first file, whose order all files follow; None: they have none
    """

    id: pa.Array
    rows: Array
    label: pa.Array | None = None
    split: Array | None = None
    features: Array | None = None
    bad: tuple[BadRow, ...] = ()
    bad_count: int = 0
    feature_names: tuple[str, ...] | None = None
    type: pa.DictionaryArray | None = None


def read_nodes(path: str | Path, options: EtlOptions, id_type: str) -> Iterator[NodeBatch]:
    """Read the node table ``path`` (a file or a folder) with ids of the type that edges have."""
    formats = {format_of(file) for file in find_files([str(path)])} & {"parquet", "csv", "tsv"}
    if len(formats) != 1:
        raise InputError(
            f"{path} cannot be a node table", expected="a .parquet, .csv or .tsv file",
            got=" and ".join(sorted(map(str, formats))) or Path(path).name,
        )  # fmt: skip
    kind = str(formats.pop())
    files = find_files([str(path)], kind)
    read = _read_parquet if kind == "parquet" else _read_text
    count, rows = 0, 0
    names: tuple[str, ...] | None = None
    for file in files:
        for batch, seen in read(file, kind, options, id_type, rows, names):
            names = names or batch.feature_names
            count += len(batch.rows)
            yield batch
            rows += seen
    if count == 0 and rows == 0:
        raise InputError(f"the node table {path} is empty", remedy="Check what wrote it")


def _read_parquet(
    path: str,
    kind: str,
    options: EtlOptions,
    id_type: str,
    start: int,
    features: tuple[str, ...] | None,
) -> Iterator[tuple[NodeBatch, int]]:
    from penstock.pipelines.etl.reading.parquet import open_parquet, read_row_groups

    with open_parquet(path) as file:
        layout = NodeLayout.of_schema(path, file.schema_arrow, id_type, options)
        layout = layout.ordered_as(features, path)
        names = list(dict.fromkeys(str(column) for column in layout.columns()))
        done = 0
        for found in read_row_groups(file, path, range(file.metadata.num_row_groups), names):
            count = len(found[names[0]])
            rows = RowSource.of(path, done + 1, {name: found[name] for name in names[:6]})
            checks = RowChecks(count)
            yield _clean(found, layout, id_type, start + done, checks, rows, options), count
            done += count


def _read_text(
    path: str,
    kind: str,
    options: EtlOptions,
    id_type: str,
    start: int,
    features: tuple[str, ...] | None,
) -> Iterator[tuple[NodeBatch, int]]:
    from penstock.pipelines.etl.reading.sample import take_sample
    from penstock.pipelines.etl.reading.text import Dialect, read_blocks

    if id_type == "binary":
        raise InputError(
            f"the ids of {path} are text, those of the edges are bytes",
            remedy="Write the node table as Parquet, with ids of the edges' type",
        )
    sample = take_sample(path, kind, options)
    if not sample.rows:
        return
    layout = NodeLayout.of_sample(sample, options).ordered_as(features, path)
    columns = list(dict.fromkeys(layout.columns()))
    slots = np.full(len(layout.names), -1, np.int32)
    slots[columns] = np.arange(len(columns))
    piece = Piece(path, kind)
    lines: dict[str, int] = {}
    done = 0
    for block in read_blocks(
        piece, slots, Dialect.of(kind, sample.delimiter), header=layout.header
    ):
        count = len(block.widths)
        checks = RowChecks(count)
        check_widths(block.widths, len(layout.names), checks)
        found = {column: block.fields(slots[column]) for column in columns}
        rows = RowSource(path, partial(line_number, piece, block, lines), block.text)
        yield _clean(found, layout, id_type, start + done, checks, rows, options), count
        done += count


def _clean(
    found: dict[Any, Any],
    layout: NodeLayout,
    id_type: str,
    first: int,
    checks: RowChecks,
    rows: RowSource,
    options: EtlOptions,
) -> NodeBatch:
    """Convert the columns of some rows; leave out the bad ones."""
    import pyarrow as pa

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
        may_miss = options.missing_features != "error"
        wanted = [found[column] for column in layout.features]
        features = features_of(wanted, layout, checks, may_miss=may_miss)
    bad, bad_count = checks.report(rows, options.on_bad_rows)
    numbers = np.arange(first, first + checks.count)
    names = layout.feature_names
    if checks.bad is not None:
        keep = ~checks.bad
        mask = pa.array(keep)
        ids, numbers = ids.filter(mask), numbers[keep]
        label, types = (a if a is None else a.filter(mask) for a in (label, types))
        split, features = (a if a is None else a[keep] for a in (split, features))
    coded = None if types is None else types.dictionary_encode()
    return NodeBatch(ids, numbers, label, split, features, bad, bad_count, names, coded)
