"""TU data sets: a folder of text files that together are a zoo of graphs.

NAME_A.txt                a row an edge: source, target; nodes count from 1 through all graphs
NAME_graph_indicator.txt  a row a node: its graph, ascending from 1
NAME_graph_labels.txt     a row a graph          NAME_graph_attributes.txt
NAME_node_labels.txt      a row a node           NAME_node_attributes.txt
NAME_edge_labels.txt      a row a row of A

Such a set fits in memory: it is read there, in one process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.errors import CapacityError, InputError, UsageError
from penstock.files import FileEntry
from penstock.manifest import Manifest, ShardEntry
from penstock.options import flag
from penstock.pipelines.etl.nodes.features import fill_missing, missing_as
from penstock.pipelines.etl.nodes.labels import coded_labels
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.zoos.build import SHARD_SIZE
from penstock.pipelines.etl.zoos.rows import build_csr, keep_nodes
from penstock.pipelines.etl.zoos.tu_files import find_tu_files, need_rows, read_labels, read_numbers
from penstock.pipelines.etl.zoos.write import cut_graphs, graphs_table, row_ranges
from penstock.vector_parts import vector_lists
from penstock.writer import write_features, write_nodes, write_parquet, write_shard

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN_OPTIONS = (
    "source",
    "target",
    "weight",
    "relation",
    "time",
    "graph_id",
    "header",
    "delimiter",
    "id_type",
)
_MOST_EMPTY = 1 << 24  # graphs without nodes


@dataclass(frozen=True)
class TuData:
    """A TU data set in memory, checked; nodes and graphs count from 0."""

    sources: Array  # (edges,) int32
    targets: Array
    graph_of: Array  # (nodes,) ascending
    graphs: int
    relations: Array | None  # (edges,) int32
    relation_names: tuple[str, ...] | None
    node_labels: Array | None
    features: Array | None  # (nodes, width) float32
    graph_labels: Array | None
    graph_attributes: Array | None  # (graphs, width) float64


def build_tu(
    folder: str | Path,
    options: EtlOptions,
    root: Path,
    report: EtlReport | None = None,
    *,
    shard_size: int = SHARD_SIZE,
) -> Manifest:
    """Write the TU data set in ``folder`` into ``root``; return its manifest, not yet saved."""
    _refuse_tu_options(options)
    data = read_tu(folder, may_miss=options.missing_features != "error")
    if options.relation == "none":
        data = replace(data, relations=None, relation_names=None)
    fill, filled = None, 0
    if data.features is not None:
        fill, filled = missing_as(data.features, options.missing_features)
    if fill is not None:
        fill_missing(data.features, fill)
    csr, counts = build_csr(
        data.sources, data.targets, len(data.graph_of), data.relations, {}, options
    )
    csr, kept = keep_nodes(csr, options)
    if report is not None:
        report.rows_read += len(data.sources)
        report.nodes_dropped += len(data.graph_of) - csr.rows
        if options.duplicates != "keep":
            report.duplicates_merged += counts["merged"]
        report.in_both_directions += counts["pairs"]
        report.features_filled += filled
        loops = int(np.count_nonzero(data.sources == data.targets))
        report.count_loops(loops, kept=options.self_loops == "keep")
    return _write(data, csr, slice(None) if kept is None else kept, options, root, shard_size)


def read_tu(folder: str | Path, *, may_miss: bool = False) -> TuData:
    """Read and check the files of a TU data set; features that ``may_miss`` are NaN there."""
    files = find_tu_files(folder)
    indicator = read_numbers(files["graph_indicator"], integers=True, columns=1)[:, 0]
    graph_labels = read_labels(files["graph_labels"]) if "graph_labels" in files else None
    graphs = int(indicator.max(initial=0)) if graph_labels is None else len(graph_labels)
    _check_indicator(files["graph_indicator"], indicator, graphs)
    if graph_labels is None:
        _refuse_gaps(files["graph_indicator"], indicator)
    edges = read_numbers(files["A"], integers=True, columns=2)
    if max(len(edges), len(indicator)) >= 2**30:
        raise CapacityError(f"{files['A']} has too many rows", expected="less than 2**30")
    _check_edges(files["A"], edges, indicator)
    nodes = len(indicator)
    relations, names = None, None
    if "edge_labels" in files:
        labels = read_numbers(files["edge_labels"], integers=True, columns=1)[:, 0]
        need_rows(files["edge_labels"], labels, len(edges), "row of A")
        distinct, codes = np.unique(labels, return_inverse=True)
        relations, names = codes.astype(np.int32), tuple(str(name) for name in distinct)
    node_labels = features = attributes = None
    if "node_labels" in files:
        node_labels = read_labels(files["node_labels"])
        need_rows(files["node_labels"], node_labels, nodes, "node")
    if "node_attributes" in files:
        path = files["node_attributes"]
        features = read_numbers(path, integers=False, may_miss=may_miss).astype(np.float32)
        need_rows(files["node_attributes"], features, nodes, "node")
    if "graph_attributes" in files:
        attributes = read_numbers(files["graph_attributes"], integers=False)
        need_rows(files["graph_attributes"], attributes, graphs, "graph")
    ends = (edges - 1).astype(np.int32)
    return TuData(
        np.ascontiguousarray(ends[:, 0]),
        np.ascontiguousarray(ends[:, 1]),
        indicator - 1,
        graphs,
        relations,
        names,
        node_labels,
        features,
        graph_labels,
        attributes,
    )


def _refuse_tu_options(options: EtlOptions) -> None:
    options.refuse_in_zoo()
    defaults = EtlOptions()
    for name in _COLUMN_OPTIONS:
        given = getattr(options, name)
        if given != getattr(defaults, name) and (name, given) != ("relation", "none"):
            raise UsageError(
                f"{flag(name)} cannot be used with a TU folder",
                remedy="The names of its files say what they hold",
            )
    if options.on_bad_rows == "skip":
        raise UsageError(
            "--on-bad-rows skip cannot be used with a TU folder",
            remedy="Its files are matched by row number, so that no row can be left out",
        )
    if options.label_kind == "multi":
        raise UsageError(
            "--label-kind multi cannot be used with a TU folder", expected="auto, class or value"
        )


def _check_indicator(path: str, indicator: Array, graphs: int) -> None:
    steps = np.diff(indicator, prepend=1)
    # The first row is compared with 1, so that graphs below 1 are found as well.
    falling = np.flatnonzero(steps < 0)
    if len(falling):
        row = int(falling[0])
        raise InputError(
            f"{path}, row {row + 1}: graphs do not ascend from 1",
            expected=f"{1 if row == 0 else indicator[row - 1]} or more",
            got=str(indicator[row]),
            remedy="Sort nodes by graph and renumber them in all files",
        )
    if len(indicator) and indicator[-1] > graphs:
        row = int(np.searchsorted(indicator, graphs, side="right"))
        raise InputError(
            f"{path}, row {row + 1}: a graph without a label",
            expected=f"at most {graphs}, the rows of graph_labels",
            got=str(indicator[row]),
        )


def _refuse_gaps(path: str, indicator: Array) -> None:
    """Raise where numbers leave out so many graphs that one of them must be a mistake.

    Without labels nothing but the last number says how many graphs there are.
    """
    steps = np.diff(indicator, prepend=0)
    if len(steps) and int(indicator[-1]) - np.count_nonzero(steps) > _MOST_EMPTY:
        row = int(np.argmax(steps))
        raise InputError(
            f"{path}, row {row + 1}: too many graphs without nodes before it",
            expected=f"graphs numbered from 1, of which at most {_MOST_EMPTY:,} are left out",
            got=f"{indicator[row]} after {indicator[row - 1] if row else 0}",
            remedy="Correct the row, or renumber the graphs in all files",
        )


def _check_edges(path: str, edges: Array, indicator: Array) -> None:
    nodes = len(indicator)
    outside = np.flatnonzero(((edges < 1) | (edges > nodes)).any(axis=1))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{path}, row {row + 1}: a node that is not in graph_indicator",
            expected=f"nodes from 1 to {nodes}",
            got=f"{edges[row, 0]}, {edges[row, 1]}",
        )
    ends = indicator[edges - 1]
    across = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if len(across):
        row = int(across[0])
        raise InputError(
            f"{path}, row {row + 1}: an edge between two graphs",
            expected="both nodes in the same graph",
            got=f"node {edges[row, 0]} of graph {ends[row, 0]} and "
            f"node {edges[row, 1]} of graph {ends[row, 1]}",
        )


def _write(
    data: TuData, csr: CSR, kept: Any, options: EtlOptions, root: Path, shard_size: int
) -> Manifest:
    import pyarrow as pa

    graph_of = data.graph_of[kept]
    nodes = np.bincount(graph_of, minlength=data.graphs)
    ends = offsets_of(nodes)
    edges = np.diff(csr.indptr[ends])
    cuts, _ = cut_graphs(nodes + edges, shard_size, shard_size)
    shards: list[ShardEntry] = []
    files: list[FileEntry] = []
    for start, stop in row_ranges({0, *ends[cuts].tolist()}, csr.rows):
        piece = csr.row_range(start, stop)
        files += write_shard(root, len(shards), piece)
        shards.append(ShardEntry(start, stop, piece.edges))
    table = pa.table(
        {
            "id": np.arange(1, len(data.graph_of) + 1)[kept],
            "graph": graph_of.astype(id_dtype(data.graphs)),
        }
    )
    manifest = Manifest(
        csr.rows,
        csr.edges,
        bool(options.directed),
        tuple(shards),
        {name: str(array.dtype) for name, array in csr.arrays()},
        {},
        relations=data.relation_names,
        graphs=data.graphs,
    )
    if data.node_labels is not None:
        # Classes are those of the whole set, though nodes may have been dropped.
        labels, kind, classes = coded_labels(pa.array(data.node_labels), options)
        table = table.append_column("label", labels.take(pa.array(np.arange(len(labels))[kept])))
        manifest = replace(manifest, labels=kind, classes=classes)
    files.append(write_nodes(root, table))
    files.append(write_parquet(root, "graphs.parquet", _graphs(data, nodes, edges)))
    if data.features is not None:
        entry, written = write_features(root, data.features[kept])
        manifest = replace(manifest, features=entry)
        files += written
    return replace(manifest, files={entry.name: entry for entry in files})


def _graphs(data: TuData, nodes: Array, edges: Array) -> pa.Table:
    import pyarrow as pa

    table = graphs_table(np.arange(1, data.graphs + 1), nodes, edges, 0)
    if data.graph_labels is not None:
        table = table.append_column("label", pa.array(data.graph_labels))
    if data.graph_attributes is not None:
        table = table.append_column("attributes", vector_lists(data.graph_attributes))
    return table
