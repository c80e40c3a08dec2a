"""The node table goes through the steps of ids like one more batch of edges, without any edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.errors import InputError, UsageError
from penstock.pipelines.etl.nodes.coded import FeatureCoder
from penstock.pipelines.etl.nodes.encode import encode_nodes, type_of_all
from penstock.pipelines.etl.nodes.features import open_features
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds
from penstock.pipelines.etl.nodes.table import read_nodes
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Batch, Layout
from penstock.pipelines.tables.matrix import load_matrix

_ID_BATCH = 1 << 22


@dataclass
class NodeTable:
    """A node table that was read: its ids are spilled in ``folders``, the rest is here."""

    name: str
    rows: int  # bad ones included
    folders: list[Path]
    table_rows: Array  # (clean rows,) row of the table, from 0, of each clean row
    feature_rows: Array  # (clean rows,) row of the features of each clean row
    labels: pa.ChunkedArray | None = None
    splits: Array | None = None  # (clean rows,) int8: 0, 1, 2 as in SPLITS, -1 none
    features: Any = None  # dense (mapped) or SciPy CSR
    coder: FeatureCoder | None = None  # if the features are columns of the table
    bad: list[dict[str, Any]] = field(default_factory=list)
    bad_count: int = 0
    # (nodes,) int64 by sorted id: clean row, -1 if the node is not in the table
    row_of: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def find(self, codes: Array, ids: NodeIds, options: EtlOptions, *, whole: bool) -> None:
        """Check the table against the edges, now that every row's node is known.

        codes  (clean rows,) the node of each row, by position among all ids
        whole  whether all nodes should be in the table, not only those that change
        """
        self.row_of = np.full(len(ids), -1, np.int64)
        self.row_of[codes] = np.arange(len(codes))
        twice = np.flatnonzero(self.row_of[codes] != np.arange(len(codes)))
        if len(twice):
            row = int(twice[0])
            first, second = self.table_rows[[row, self.row_of[codes[row]]]] + 1
            raise InputError(
                f"{self.name}: rows {first} and {second} of the table have the same id",
                expected="every id once",
                got=f"{ids.name(int(codes[row]))!r} again, {len(twice)} such rows in all",
                remedy="Remove the duplicates",
            )
        unknown = np.flatnonzero(self.row_of < 0)
        if whole and len(unknown) and options.unknown_nodes == "error":
            raise InputError(
                f"{len(unknown)} nodes of the edges are not in {self.name}",
                expected=f"each among its {self.rows} rows",
                got=f"{ids.name(int(unknown[0]))!r} first",
                remedy="Add them to the table, or give --unknown-nodes add or drop",
            )


def encode_node_table(
    options: EtlOptions, layout: Layout, matrices: list[str], folder: Path
) -> NodeTable | None:
    """Read the node table, or make one for features or matrices that number nodes from 0."""
    if options.nodes is not None:
        return _read_table(options, layout, folder)
    sizes, name = _numbered_nodes(options, matrices)
    if not sizes:
        return None
    if layout.id_type not in ("int64", "uint64"):
        raise InputError(
            f"{name} numbers nodes from 0, but the edges' ids are not integers",
            remedy="Give --nodes, a table whose rows say which id each row of features is for",
        )
    folders: list[Path] = []
    for kind, size in sizes.items():
        for start in range(0, size, _ID_BATCH):
            numbers = _numbers(start, min(size, start + _ID_BATCH), layout.id_type)
            types = None if kind is None else type_of_all(kind, len(numbers))
            folders.append(encode_nodes(numbers, folder / f"{len(folders):05d}", types))
    size = sum(sizes.values())
    features = _open_features(options, size)
    rows = np.arange(size)
    return NodeTable(name, size, folders, rows, rows, features=features)


def _read_table(options: EtlOptions, layout: Layout, folder: Path) -> NodeTable:

    nothing = np.empty(0, np.int64)
    found = NodeTable(str(options.nodes), 0, [], nothing, nothing)
    kept: dict[str, list[Any]] = {"row": [], "label": [], "split": []}
    coder = FeatureCoder(options)
    width = 0
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "features.raw").open("wb") as spilled:
        for i, (batch, features) in enumerate(read_nodes(options, layout.id_type, coder)):
            columns = {one: batch.table[one] for one in batch.table.column_names}
            found.folders.append(_encode(batch, options, folder / f"{i:05d}"))
            for name, parts in kept.items():
                parts += columns[name].chunks if name in columns else ()
            if features is not None:
                width = _same_width(features.shape[1], width, found.name)
                found.coder = coder
                features.tofile(spilled)
            found.bad = (found.bad + [vars(bad) for bad in batch.bad])[:10]
            found.bad_count += batch.bad_count
    if not sum(map(len, kept["row"])) + found.bad_count:
        raise InputError(f"the node table {found.name} is empty", remedy="Check what wrote it")
    found.table_rows = found.feature_rows = np.concatenate(kept["row"])
    clean = len(found.table_rows)
    found.rows = clean + found.bad_count
    found.labels = _joined(kept["label"], found.name) if kept["label"] else None
    found.splits = np.concatenate(kept["split"]) if kept["split"] else None
    found.features = _open_features(options, found.rows)
    if width:
        # Columns of the table were spilled clean row by clean row.
        found.features = np.memmap(folder / "features.raw", coder.dtype, "r", shape=(clean, width))
        found.feature_rows = np.arange(clean)
    return found


def encode_removed(options: EtlOptions, id_type: str, folder: Path) -> Iterator[tuple[Path, Batch]]:
    """Spill the ids of --remove-nodes like those of a node table."""
    names = "node_id", "node_type", "source_type", "target_type", "header", "delimiter"
    given = {name: getattr(options, name) for name in (*names, "on_bad_rows")}
    only = EtlOptions(nodes=options.remove_nodes, **given)
    for i, (batch, _) in enumerate(read_nodes(only, id_type, FeatureCoder(only))):
        yield _encode(batch, only, folder / f"{i:05d}"), batch


def _encode(batch: Batch, options: EtlOptions, folder: Path) -> Path:
    types = None
    if "type" in batch.table.column_names:
        types = batch.table["type"].combine_chunks().dictionary_encode()
    elif options.source_type is not None:
        types = type_of_all(str(options.node_type), len(batch.table))
    return encode_nodes(batch.table["id"], folder, types)


def _joined(labels: list[pa.Array], name: str) -> pa.ChunkedArray:
    """Return the labels of all files as one column; a file without any has no type of its own."""
    some = [array for array in labels if array.null_count < len(array)] or labels[:1]
    parts = [one if one.null_count < len(one) else pa.nulls(len(one)) for one in labels]
    tables = [pa.table({"label": one}) for one in (some[0][:0], *parts)]
    try:
        if len({pa.types.is_floating(array.type) for array in some}) > 1:
            raise pa.ArrowTypeError("floats, and others")  # 1 is a class, and 1.0 a value
        return pa.concat_tables(tables, promote_options="permissive")["label"]
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise InputError(
            f"the labels of {name} have one type in one file and another in another",
            expected=f"{some[0].type}, as the first file has",
            got=str(error),
            remedy="Write all files with the same type, or name their kind with --label-kind",
        ) from error


def _same_width(width: int, before: int, name: str) -> int:
    if before not in (0, width):
        raise InputError(
            f"the features of {name} do not all have the same length",
            expected=f"{before} numbers per node, as in the first rows",
            got=str(width),
        )
    return width


def _numbered_nodes(options: EtlOptions, matrices: list[str]) -> tuple[dict[Any, int], str]:
    """Return the number of nodes of each type (None: without types) that an option numbers from 0.

    The second value names that option.
    """
    if options.features is not None:
        if options.source_type is not None:
            raise UsageError(
                "--features of nodes with types needs --nodes, a table with one row per node"
            )
        nodes = open_features(options.features, checked=False).shape[0]
        return {None: nodes}, str(options.features)
    sizes: dict[Any, int] = {}
    for path in matrices:
        shape = load_matrix(path, "adj_").shape
        for kind, size in zip((options.source_type, options.target_type), shape, strict=True):
            sizes[kind] = max(size, sizes.get(kind, 0))
    return sizes, "".join(matrices[:1])


def _open_features(options: EtlOptions, rows: int) -> Any:
    if options.features is None:
        return None
    features = open_features(options.features, may_miss=options.missing_features != "error")
    if features.shape[0] != rows:
        raise InputError(
            f"{options.features} has the wrong number of rows",
            expected=f"{rows}, one per row of {options.nodes}",
            got=str(features.shape[0]),
            remedy="Make one row of features for every row of the node table",
        )
    return features


def _numbers(start: int, stop: int, id_type: str) -> pa.ChunkedArray:
    numbers = np.arange(start, stop, dtype=np.int64)
    if id_type == "uint64":
        numbers = (numbers.view(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    return pa.chunked_array([pa.array(numbers)])
