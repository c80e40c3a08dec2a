"""What belongs to nodes: the user's ids, labels, splits and features, in internal order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import one_array
from penstock.files import FileEntry
from penstock.graph import count_splits
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.encoding import encoding_of
from penstock.pipelines.etl.nodes.input import NodeTable
from penstock.pipelines.etl.nodes.labels import coded_labels
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds
from penstock.splits import split_nodes
from penstock.writer import write_feature_files, write_rows

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


def write_node_data(
    job: EtlJob,
    root: Path,
    ids: NodeIds,
    order: Array | None,
    table: NodeTable | None,
    manifest: Manifest,
    **columns: Any,
) -> Manifest:
    """Write nodes.parquet and features/, and return the manifest with the entries about nodes.

    order     (nodes,) position among all ids of each internal id; None: they are the same
    manifest  so far; its classes keep their numbers
    columns  more of nodes.parquet, in Arrow
    """
    options = job.options
    found: dict[str, Any] = {"types": ids.count_types(order)}
    count = len(ids) if order is None else len(order)
    rows = None
    if table is not None:
        rows = table.row_of if order is None else table.row_of[order]
        if table.labels is not None:
            labels, kind, classes = coded_labels(one_array(table.labels), options, manifest.classes)
            columns["label"] = labels.take(pa.array(rows, mask=rows < 0))
            found |= {"labels": kind, "classes": classes}
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
        found["splits"] = count_splits(np.asarray(columns["split"].fill_null(-1)))
    files = [_write_nodes(root, ids, order, columns, count)]
    if table is not None and table.features is not None:
        assert rows is not None
        rows = np.where(rows < 0, -1, table.feature_rows[rows])
        encoding = encoding_of(table.features, table.coder, options)
        filled = options.missing_features != "error"
        rows_of = _gather(table.features, rows, encoding.apply, filled=filled)
        found["features"], more = write_feature_files(root, count, encoding.width, rows_of)
        files += more
        found |= {"feature_names": encoding.names, "feature_columns": encoding.columns}
        job.counts.features_filled = encoding.filled
        if table.coder is not None:
            job.counts.columns_of_unknown = table.coder.unknown
            job.counts.categories_unknown = sum(table.coder.unknown.values())
    return replace(manifest, **found).with_files(files)


def _write_nodes(
    root: Path, ids: NodeIds, order: Array | None, columns: dict[str, Any], count: int
) -> FileEntry:
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
