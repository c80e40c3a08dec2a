"""What belongs to nodes: the user's ids, labels, splits and features, in internal order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import one_array
from penstock.errors import InputError
from penstock.files import FileEntry
from penstock.graph import SPLITS
from penstock.manifest import FeatureColumn, FeatureEntry
from penstock.pipelines.etl.nodes.coded import FeatureCoder
from penstock.pipelines.etl.nodes.encoding import encoding_of
from penstock.pipelines.etl.nodes.labels import coded_labels
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds
from penstock.pipelines.etl.options import EtlOptions
from penstock.splits import split_nodes
from penstock.writer import write_feature_files, write_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class NodeTable:
    """The node table, read and checked: row by row as the user wrote it."""

    row_of: Array  # (nodes,) int64 by sorted id: row of the table, -1 if the node is not in it
    labels: pa.ChunkedArray | None
    splits: Array | None  # (rows,) int8: 0, 1, 2 as in SPLITS, -1 none
    # Dense (mapped) or SciPy CSR, and which of its rows belongs to each row of the table.
    features: tuple[Any, Array] | None = None
    coder: FeatureCoder | None = None  # if the features are columns of the table


@dataclass
class NodeResult:
    """The manifest's entries about nodes."""

    files: list[FileEntry] = field(default_factory=list)
    features: FeatureEntry | None = None
    feature_names: tuple[str, ...] | None = None
    feature_columns: tuple[FeatureColumn, ...] | None = None
    features_filled: int = 0  # of the table: those that were missing
    unknown: dict[str, int] = field(default_factory=dict)  # values of new categories, by column
    labels: str | None = None
    classes: tuple[str, ...] | None = None
    splits: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)


def rows_of_ids(
    codes: Array, table_rows: Array, nodes: int, name: str, called: Callable[[int], Any]
) -> Array:
    """Return for each node its clean row in the node table, -1 for none; a duplicate is an error.

    codes       (clean rows,) node of each row
    table_rows  (clean rows,) position of each in the table, for the message
    called      returns the name of a node, for the message
    """
    row_of = np.full(nodes, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    twice = np.flatnonzero(row_of[codes] != np.arange(len(codes)))
    if len(twice):
        row = int(twice[0])
        first, second = table_rows[row] + 1, table_rows[row_of[codes[row]]] + 1
        raise InputError(
            f"{name}: rows {first} and {second} of the table have the same id",
            expected="every id once",
            got=f"{called(int(codes[row]))!r} again, {len(twice)} such rows in all",
            remedy="Remove the duplicates",
        )
    return row_of


def write_node_data(
    root: Path,
    ids: NodeIds,
    order: Array | None,
    table: NodeTable | None,
    options: EtlOptions,
) -> NodeResult:
    """Write nodes.parquet and features/.

    order    (nodes,) position among all ids of each internal id; None: they are the same
    """
    import pyarrow as pa

    result = NodeResult(types=ids.count_types(order))
    count = len(ids) if order is None else len(order)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    rows = None
    if table is not None:
        rows = table.row_of if order is None else table.row_of[order]
        nothing = pa.array(rows < 0)
        if table.labels is not None:
            found = one_array(table.labels)
            labels, result.labels, result.classes = coded_labels(found, options)
            columns["label"] = labels.take(pa.array(rows, mask=np.asarray(nothing)))
        if table.splits is not None:
            splits = np.where(rows < 0, -1, table.splits[rows])
            columns["split"] = pa.array(splits.astype(np.int8), mask=splits < 0)
    if options.split_nodes is not None:
        splits = split_nodes(ids.keys(), options.split_nodes, options.seed)
        splits = splits if order is None else splits[order]
        if "label" in columns:
            splits[np.asarray(columns["label"].is_null())] = -1
        columns["split"] = pa.array(splits, mask=splits < 0)
    if "split" in columns:
        numbers = np.asarray(columns["split"].fill_null(-1))
        result.splits = {name: int(np.sum(numbers == i)) for i, name in enumerate(SPLITS)}
    result.files.append(_write_nodes(root, ids, order, columns, count))
    if table is not None and table.features is not None:
        assert rows is not None
        features, feature_rows = table.features
        rows = np.where(rows < 0, -1, feature_rows[rows])
        encoding = encoding_of(features, table.coder, options)
        result.features, files = write_feature_files(
            root,
            count,
            encoding.width,
            _gather(features, rows, encoding.apply, filled=options.missing_features != "error"),
        )
        result.files += files
        result.feature_names, result.feature_columns = encoding.names, encoding.columns
        result.features_filled = encoding.filled
        if table.coder is not None:
            result.unknown = table.coder.unknown
    return result


def _write_nodes(
    root: Path, ids: NodeIds, order: Array | None, columns: dict[str, Any], count: int
) -> FileEntry:
    import pyarrow as pa

    known = {**ids.columns(range(0)), **columns}
    schema = pa.schema([(name, column.type) for name, column in known.items()])

    def table(start: int, stop: int) -> pa.Table:
        part = ids.columns(range(start, stop) if order is None else order[start:stop])
        pieces = {n: c.slice(start, stop - start) for n, c in columns.items()}
        return pa.table({**part, **pieces}, schema=schema)

    return write_rows(root, "nodes.parquet", count, table)


def _gather(
    features: Any, rows: Array, apply: Callable[[Any], Any] | None, *, filled: bool
) -> Callable[[int, int], Any]:
    """Return a function that gives the features of a range of nodes.

    A node without a row has zeros; dense features of it are ``filled`` as those of a row without
    values.

    apply  what makes features of rows as they were read
    """

    def piece(start: int, stop: int) -> Any:
        wanted = rows[start:stop]
        known = wanted >= 0
        if hasattr(features, "tocsr"):
            import scipy.sparse as sp

            picked = features[np.where(known, wanted, 0)]
            if apply is not None:
                picked = apply(picked)
            return (
                sp.diags_array(known.astype(features.dtype)) @ picked if not known.all() else picked
            )
        picked = np.asarray(features[np.where(known, wanted, 0)])
        if filled and not known.all():
            picked = picked.astype(np.result_type(picked, np.float32), copy=False)
            picked[~known] = np.nan
        if apply is not None:
            picked = apply(picked)
        if not filled:
            picked[~known] = 0
        return picked

    return piece
