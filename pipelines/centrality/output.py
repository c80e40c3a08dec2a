"""The output of centralities: Parquet by node, graph and edge; centrality.json is written last.

centrality.json             metrics, input, options, and the files that hold the results
nodes/part-00000.parquet    graph_id and node (the user's ids), one column per metric
graphs/part-00000.parquet   graph_id, nodes, edges, and metrics of a whole graph: diameter
edges/part-00000.parquet    graph_id, source, target, betweenness: with edge-betweenness
structure/00000.npy         of several graphs: 128 bits of each graph, for --base; and its nodes
distances/00000.npy         with --distances: matrices of the graphs of a part, one after another
failures.parquet            graph_id, reason: graphs, or metrics of them, that could not be computed
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.arrow import as_arrow, take
from penstock.files import FileEntry, file_table, part_name, save_npy
from penstock.formats import Format
from penstock.output import Output, Pieces
from penstock.pipelines.centrality.base import Known
from penstock.pipelines.centrality.compute import REASONS, Columns
from penstock.pipelines.centrality.pieces import Piece, PieceSpec
from penstock.writer import write_table

FORMAT = Format(
    name="penstock-centrality",
    version=1,
    file="centrality.json",
    thing="directory of centralities",
    make="Make one with penstock centrality",
    restore="Restore the file, or compute again with --overwrite",
)


def save_results(
    records: Pieces,
    number: int,
    piece: Piece,
    found: Columns,
    distances: Array | None,
    structure: Array | None = None,
    known: Known | None = None,
) -> None:
    """Write the results of a piece, and record that."""
    result, name = records.result, f"{part_name(number)}.parquet"
    sizes = piece.sizes
    failed = np.zeros(len(sizes), bool)
    failed[list(piece.failed)] = True
    of_nodes = np.repeat(np.arange(len(sizes)), sizes)
    lacking = {metric: failed.copy() for metric in found.lacking}
    for metric, graphs in found.lacking.items():
        lacking[metric][graphs] = True
    columns = _named(piece, of_nodes) | {"node": piece.nodes}
    for metric, values in found.nodes.items():
        missing = lacking.get(metric, failed)
        # Seldom: only then this many are looked up.
        each = missing[of_nodes] if missing.any() else None
        columns[metric] = as_arrow(np.ascontiguousarray(values), each)
    files = [_write(result, f"nodes/{name}", columns)]
    columns = _named(piece, np.arange(len(sizes)))
    columns |= {"nodes": as_arrow(sizes), "edges": as_arrow(piece.edges)}
    columns |= {key: as_arrow(values, failed) for key, values in found.graphs.items()}
    files.append(_write(result, f"graphs/{name}", columns))
    if found.edges is not None:
        ends = _edge_columns(piece, found.edges, lacking["betweenness"])
        files.append(_write(result, f"edges/{name}", ends))
    if distances is not None:
        files.append(save_npy(result, f"distances/{number:05d}.npy", distances))
    if structure is not None:
        for missing in (failed, *lacking.values()):
            structure[missing, :2] = 0
        files.append(save_npy(result, f"structure/{number:05d}.npy", structure))
    reasons = dict(piece.failed)
    for metric, reason in REASONS.items():
        for graph in map(int, found.lacking.get(metric, ())):
            if graph not in piece.failed:
                reasons[graph] = f"{reasons[graph]}; {reason}" if graph in reasons else reason
    counts = {
        "graphs": len(sizes),
        "nodes": int(sizes.sum()),
        "taken_over": 0 if known is None else int(known.mask.sum()),
        "failures": [[graph, reason] for graph, reason in sorted(reasons.items())],
    }
    records.save(part_name(number), counts, files)


def is_done(records: Pieces, number: int) -> bool:
    """Return whether a part is complete."""
    return records.done(part_name(number), "graphs", "nodes", "taken_over", "failures")


def save_manifest(out: Output, specs: list[PieceSpec], about: dict[str, Any]) -> dict[str, Any]:
    """Write failures.parquet, describe the output, and return the sums over all parts."""
    total = {"graphs": 0, "nodes": 0, "taken_over": 0}
    files: list[FileEntry] = []
    ids: list[Any] = []
    reasons: list[str] = []
    for number, spec in enumerate(specs):
        counts, entries = out.pieces.load(part_name(number))
        files += entries
        failures = counts["failures"]
        if failures and spec.ids is not None:
            ids.append(take(spec.ids, np.array([graph for graph, _ in failures], np.int64)))
        reasons += [reason for _, reason in failures]
        for name in total:
            total[name] += counts[name]
    columns: dict[str, Any] = {}
    if specs and specs[0].ids is not None:
        columns["graph_id"] = pa.chunked_array(ids, specs[0].ids.type)
    # Arrow imports pandas to make an array of a list.
    columns["reason"] = pa.array(reasons, pa.string()) if reasons else pa.nulls(0, pa.string())
    files.append(_write(out.pieces.result, "failures.parquet", columns))
    total["failed"] = len(reasons)
    out.describe(FORMAT, {**about, **total, "files": file_table(files)})
    return {**total, "bytes": sum(file.bytes for file in files)}


def _named(piece: Piece, of: Array) -> dict[str, Any]:
    """Return the column of graphs, by number in the piece, if the input has several."""
    return {} if piece.graphs is None else {"graph_id": take(piece.graphs, of)}


def _edge_columns(piece: Piece, values: Array, failed: Array) -> dict[str, Any]:
    """Return the edges with their ends; both ways of an edge become one, with the sum."""
    batch = piece.batch
    rows = np.repeat(np.arange(batch.nodes), np.diff(batch.indptr))
    ends = np.asarray(batch.indices, np.int64)
    chosen = np.arange(len(rows))
    if not batch.directed:
        chosen = np.flatnonzero(rows <= ends)
        keys = rows * batch.nodes + ends
        back = np.searchsorted(keys, ends[chosen] * batch.nodes + rows[chosen])
        loops = rows[chosen] == ends[chosen]
        values = values[chosen] + np.where(loops, 0, values[back])
    of = np.searchsorted(batch.ptr, rows[chosen], side="right") - 1
    return _named(piece, of) | {
        "source": take(piece.nodes, rows[chosen]),
        "target": take(piece.nodes, ends[chosen]),
        "betweenness": as_arrow(values, failed[of]),
    }


def _write(root: Path, name: str, columns: dict[str, Any]) -> FileEntry:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    words, numbers = [], []
    for field in table.schema:
        if field.name == "graph_id" or pa.types.is_string(field.type):
            words.append(field.name)  # other columns repeat too few values
        elif pa.types.is_integer(field.type):
            numbers.append(field.name)  # mostly ascending: smaller, and faster to compress
    encoding = dict.fromkeys(numbers, "DELTA_BINARY_PACKED") or None
    how = {"use_dictionary": words or False, "column_encoding": encoding}
    return write_table(root, name, [table], **how)
