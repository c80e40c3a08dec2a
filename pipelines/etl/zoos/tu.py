"""TU data sets: a folder of text files that together are a zoo of graphs.

NAME_A.txt                one row per edge: source, target; nodes count from 1 through all graphs
NAME_graph_indicator.txt  one row per node: its graph, ascending from 1
NAME_graph_labels.txt     one row per graph          NAME_graph_attributes.txt
NAME_node_labels.txt      one row per node           NAME_node_attributes.txt
NAME_edge_labels.txt      one row per row of A

Such a set fits in memory, and one task reads it: ``read_tu`` makes the rows of a zoo, and
``with_tu_data`` adds labels and features of nodes and graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import InputError
from penstock.manifest import Manifest
from penstock.options import refuse_ignored
from penstock.pipelines.etl.nodes.data import write_node_data
from penstock.pipelines.etl.nodes.input import NodeTable
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds, SortedIds
from penstock.pipelines.etl.options import IGNORED_IN_TU, EtlOptions
from penstock.pipelines.etl.reading.batch import Batch, Layout
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import read_rows
from penstock.pipelines.tables.sample import take_sample
from penstock.pipelines.tables.sources import (
    codec_of,
    file_name,
    file_size,
    find_files,
    is_folder,
)
from penstock.pipelines.tables.text import TextShape
from penstock.sizes import need_memory
from penstock.vector_parts import vector_lists
from penstock.writer import write_table

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob

_KINDS = (
    "A",
    "graph_indicator",
    "graph_labels",
    "graph_attributes",
    "node_labels",
    "node_attributes",
    "edge_labels",
)
_CODECS = ("", ".gz", ".zst", ".bz2")
# Text expands about tenfold; a byte of it is about a tenth of an edge, which needs 120 bytes.
_UNPACKED, _NEEDED = 10, 12
_FILL = "Correct the row, or fill it with --missing-features zero or mean"


def find_tu_files(folder: str) -> dict[str, str]:
    """Return the files of the one data set in ``folder``, by the last part of their names.

    Their sizes are checked.
    """
    if not is_folder(folder):
        raise InputError(f"{folder} is not a folder", expected="a folder with NAME_A.txt")
    by_name = {file_name(path): path for path in find_files([folder])}
    ends = tuple(f"_A.txt{codec}" for codec in _CODECS)
    names = sorted({name.rpartition("_A.txt")[0] for name in by_name if name.endswith(ends)})
    if len(names) != 1:
        raise InputError(
            f"{folder} is not one TU data set",
            expected="one file NAME_A.txt (or .gz)",
            got=", ".join(f"{name}_A.txt" for name in names) or "none",
        )
    found = {
        kind: path
        for kind in _KINDS
        for codec in _CODECS
        if (path := by_name.get(f"{names[0]}_{kind}.txt{codec}")) is not None
    }
    if "graph_indicator" not in found:
        raise InputError(
            f"{folder} has no {names[0]}_graph_indicator.txt",
            expected="a file with the graph of each node",
            remedy="Get the whole data set",
        )
    size = sum(file_size(path) * (_UNPACKED if codec_of(path) else 1) for path in found.values())
    need_memory(
        size * _NEEDED,
        f"the TU data set {names[0]}",
        remedy="Write its edges as a table of graph_id, source and target: a zoo of such tables "
        "is read out of core",
    )
    return found


def tu_layout(folder: str, options: EtlOptions) -> Layout:
    """Return the layout of a data set's rows; options that it would ignore are refused."""
    refuse_ignored(options, IGNORED_IN_TU)
    typed = "edge_labels" in find_tu_files(folder) and options.relation != "none"
    relation = "relation" if typed else None
    return Layout("source", "target", relation=relation, graph="graph", relation_type="int64")


def read_tu(folder: str, layout: Layout) -> Batch:
    """Return the edges, one row per isolated node, and one row per graph without nodes."""
    files = find_tu_files(folder)
    graph_of, graphs = _graphs_of(files)
    edges = read_numbers(files["A"], "int64", 2)
    _check_edges(files["A"], edges, graph_of)
    listed = np.zeros(len(graph_of), bool)
    listed[edges.ravel() - 1] = True
    alone = np.flatnonzero(~listed) + 1
    empty = np.setdiff1d(np.arange(1, graphs + 1), graph_of)
    rows = np.arange(len(edges) + len(alone) + len(empty))
    sources = np.concatenate([edges[:, 0], alone, np.zeros_like(empty)])
    targets = np.concatenate([edges[:, 1], np.zeros_like(alone), np.zeros_like(empty)])
    named = np.concatenate([graph_of[sources[: len(edges) + len(alone)] - 1], empty])
    table: dict[str, Any] = {
        "graph": as_arrow(named),
        "source": as_arrow(sources, rows >= len(edges) + len(alone)),
        "target": as_arrow(targets, rows >= len(edges)),
    }
    if layout.relation is not None:
        labels = read_numbers(files["edge_labels"], "int64", 1)[:, 0]
        need_rows(files["edge_labels"], labels, len(edges), "row of A")
        padded = np.append(labels, np.zeros(len(rows) - len(edges), np.int64))
        table["relation"] = as_arrow(padded, rows >= len(edges))
    return Batch(pa.table(table))


def with_tu_data(job: EtlJob, manifest: Manifest) -> Manifest:
    """Add labels and features of nodes, labels and attributes of graphs, to a zoo's files."""
    root, files = job.partial.result, find_tu_files(job.edges[0])
    graph_of, graphs = _graphs_of(files)
    rows, table = np.arange(len(graph_of)), pq.read_table(root / "nodes.parquet")
    about = NodeTable(job.edges[0], len(rows), [], rows, rows)
    if "node_labels" in files:
        labels = read_labels(files["node_labels"])
        need_rows(files["node_labels"], labels, len(rows), "node")
        # Classes are those of the whole set, though nodes may have been dropped.
        about.labels = pa.chunked_array([as_arrow(labels)])
    if "node_attributes" in files:
        may_miss = job.options.missing_features != "error"
        values = read_numbers(files["node_attributes"], "float64", None, may_miss=may_miss)
        about.features = values.astype(np.float32)
        need_rows(files["node_attributes"], values, len(rows), "node")
    about.row_of = as_numpy(table["id"]) - 1
    ids = NodeIds([SortedIds(as_numpy(table["id"]))], None, unsigned=False)
    manifest = write_node_data(job, root, ids, None, about, manifest, graph=table["graph"])
    table = pq.read_table(root / "graphs.parquet")
    if "graph_labels" in files:
        table = table.append_column("label", as_arrow(read_labels(files["graph_labels"])))
    if "graph_attributes" in files:
        values = read_numbers(files["graph_attributes"], "float64", None)
        need_rows(files["graph_attributes"], values, graphs, "graph")
        table = table.append_column("attributes", vector_lists(values))
    return manifest.with_files([write_table(root, "graphs.parquet", [table])])


def read_numbers(
    path: str, kind: str, columns: int | None, *, may_miss: bool | None = None
) -> Array:
    """Return all rows of a file of comma-separated numbers: (rows, columns) int64 or float64.

    columns   of each row; None: as many as in the first row
    may_miss  of features: whether some may be missing, and become NaN; None: not features
    A value that is not such a number raises InputError with file and row.
    """
    if columns is None:
        first = take_sample(path, "csv", ",").rows[:1]
        columns = len(first[0]) if first else 0
    shape = TextShape(tuple(map(str, range(columns))), ",")
    parts = [np.empty((0, columns), kind)]
    for rows in read_rows(Piece(path, "csv"), dict.fromkeys(range(columns), kind), shape):
        found = []
        for column in rows.columns.values():
            if kind == "int64":
                found.append(convert.integers(column, kind, "value", rows.checks))
                continue
            remedy = "Correct the row" if may_miss is None else None if may_miss else _FILL
            values = convert.floats(column, "value", rows.checks, missing=remedy)
            if not may_miss:
                rows.checks.fail(np.isnan(values), "value is NaN", remedy or "")
            rows.checks.fail(np.isinf(values), "value is not finite")
            found.append(values)
        rows.checks.report(rows.source, "error", can_skip=False)
        parts.append(np.stack(found, axis=1))
    return np.concatenate(parts)


def read_labels(path: str) -> Array:
    """Return one number per row: (rows,) int64 if all are integers, else float64."""
    try:
        return read_numbers(path, "int64", 1)[:, 0]
    except InputError:
        return read_numbers(path, "float64", 1)[:, 0]


def need_rows(path: str, numbers: Array, rows: int, what: str) -> None:
    """Raise InputError unless ``numbers``, read from ``path``, has ``rows`` rows."""
    if len(numbers) != rows:
        raise InputError(
            f"{path} has the wrong number of rows",
            expected=f"{rows}, one for each {what}",
            got=f"{len(numbers)}; row {min(len(numbers), rows) + 1} is the first without its "
            "counterpart",
        )


def _graphs_of(files: dict[str, str]) -> tuple[Array, int]:
    """Return the graph of each node, from 1, and the number of graphs."""
    path = files["graph_indicator"]
    graph_of = read_numbers(path, "int64", 1)[:, 0]
    graphs = int(graph_of.max(initial=0))
    if "graph_labels" in files:
        graphs = len(read_labels(files["graph_labels"]))
    # The first row is compared with 1, so that graphs below 1 are found as well.
    wrong = (np.diff(graph_of, prepend=1) < 0) | (graph_of > graphs)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{path}, row {row + 1}: graphs do not ascend from 1 to their number",
            expected=f"{1 if row == 0 else graph_of[row - 1]} to {graphs}",
            got=str(graph_of[row]),
            remedy="Sort nodes by graph and renumber them in all files",
        )
    return graph_of, graphs


def _check_edges(path: str, edges: Array, graph_of: Array) -> None:
    outside = (edges < 1) | (edges > len(graph_of))
    ends = np.append(graph_of, 0)[np.where(outside, 0, edges - 1)]
    wrong = outside.any(axis=1) | (ends[:, 0] != ends[:, 1])
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{path}, row {row + 1}: an edge that does not join two nodes of one graph",
            expected=f"nodes from 1 to {len(graph_of)}, both of the same graph",
            got=f"{edges[row, 0]}, {edges[row, 1]}",
        )
