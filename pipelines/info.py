"""``penstock info``: what a graph holds, from its manifest and one pass over its shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import GraphError
from penstock.graph import Graph
from penstock.options import ClientPath
from penstock.pipelines.info_text import info_text
from penstock.pipelines.output import CountsReport, Output
from penstock.progress import Progress
from penstock.sizes import need_memory


@dataclass(frozen=True)
class Degrees:
    """How a degree is distributed over the nodes."""

    min: int
    median: int
    p99: int
    max: int
    mean: float
    histogram: tuple[tuple[int, int, int], ...]  # (lowest, highest, nodes) by powers of two

    @staticmethod
    def of(degrees: Array) -> Degrees:
        """Count a degree for every node; quantiles are the least degree that covers the share."""
        if len(degrees) == 0:
            return Degrees(0, 0, 0, 0, 0.0, ())
        counts = np.bincount(degrees)
        nodes_up_to = np.cumsum(counts)
        median, p99 = np.searchsorted(nodes_up_to, [0.5 * len(degrees), 0.99 * len(degrees)])
        bins = [(0, 0), *((1 << b, (2 << b) - 1) for b in range((len(counts) - 1).bit_length()))]
        histogram = tuple((low, high, int(counts[low : high + 1].sum())) for low, high in bins)
        return Degrees(
            min=int(np.flatnonzero(counts)[0]),
            median=int(median),
            p99=int(p99),
            max=len(counts) - 1,
            mean=float(degrees.mean()),
            histogram=histogram,
        )


@dataclass(frozen=True)
class GraphInfo(CountsReport):
    """Everything ``penstock info`` tells; ``text()`` for people, ``to_dict()`` for programs."""

    path: str
    directed: bool
    nodes: int
    arcs: int
    edges: int  # an undirected edge counts once, one of a directed graph counts once
    self_loops: int
    isolated: int
    shards: int
    degrees: Degrees
    in_degrees: Degrees | None  # directed graphs only
    components: int
    largest_component: int
    relations: dict[str, int] | None
    weights: dict[str, float] | None  # min, max, mean
    times: dict[str, float] | None  # min, max; of timestamps in nanoseconds since 1970
    timestamps: bool
    features: dict[str, Any] | None
    labels: dict[str, Any] | None
    splits: dict[str, int]
    heldout: dict[str, int]
    graphs: int | None
    bytes: dict[str, int]
    partitions: tuple[dict[str, Any], ...]
    made: dict[str, Any]

    def text(self) -> str:
        """Return aligned lines for a terminal or a log."""
        return info_text(self.to_dict())


def info(path: str | Path, *, quiet: bool = True) -> GraphInfo:
    """Return counts, degrees, components, features, size and partitions of a graph.

    Edges are read once, shard by shard; memory is a few numbers a node, however many edges.

    Parameters
    ----------
    path
        The graph's directory.
    quiet
        Print no progress.

    Returns
    -------
    GraphInfo
        What was found; ``text()`` and ``to_dict()``.

    Raises
    ------
    GraphError
        It is no graph, or one of its files is missing, cut short or damaged.
    CapacityError
        The counts of its nodes do not fit in memory.

    Examples
    --------
    >>> info("g").components
    """
    graph = Graph.open(path)
    manifest = graph.manifest
    need_memory(
        graph.num_nodes * (24 if manifest.directed else 16),
        f"counting degrees and components of {graph.path}",
        remedy="Run it on a machine with more memory",
    )
    edges = _EdgePass(graph)
    with Progress("read edges", total=graph.num_edges, unit="edges", quiet=quiet) as progress:
        for number in range(graph.num_shards):
            shard = graph.shard(number)
            edges.add(shard)
            progress.advance(shard.edges)
    components, largest = edges.components()
    loops = edges.self_loops
    return GraphInfo(
        path=str(graph.path),
        directed=manifest.directed,
        nodes=graph.num_nodes,
        arcs=graph.num_edges,
        edges=graph.num_edges if manifest.directed else (graph.num_edges + loops) // 2,
        self_loops=loops,
        isolated=edges.isolated(),
        shards=graph.num_shards,
        degrees=Degrees.of(edges.degrees),
        in_degrees=None if edges.in_degrees is None else Degrees.of(edges.in_degrees),
        components=components,
        largest_component=largest,
        relations=edges.relation_counts(manifest.relations),
        weights=edges.range_of("weights"),
        times=edges.range_of("times"),
        timestamps=manifest.times == "timestamp",
        features=_features(graph),
        labels=_labels(graph),
        splits=manifest.splits,
        heldout=manifest.heldout,
        graphs=manifest.graphs,
        bytes=_bytes(graph),
        partitions=_partitions(graph),
        made=manifest.made,
    )


class _EdgePass:
    """What one pass over the shards collects."""

    def __init__(self, graph: Graph) -> None:
        from penstock.kernels.cpu import components

        self._components = components
        self._forest = components.new_forest(graph.num_nodes)
        self.degrees = np.zeros(graph.num_nodes, dtype=np.int64)
        self.in_degrees = np.zeros_like(self.degrees) if graph.manifest.directed else None
        self.self_loops = 0
        self._relations: Array = np.zeros(0, dtype=np.int64)
        self._ranges: dict[str, list[float]] = {}

    def add(self, shard: CSR) -> None:
        self._components.union_rows(self._forest, shard.indptr, shard.indices, shard.first_row)
        self.degrees[shard.first_row : shard.first_row + shard.rows] = shard.degrees()
        self.self_loops += int(np.count_nonzero(shard.sources() == shard.indices))
        if self.in_degrees is not None:
            np.add.at(self.in_degrees, shard.indices, 1)
        if shard.relations is not None:
            counts = np.bincount(shard.relations, minlength=len(self._relations))
            counts[: len(self._relations)] += self._relations
            self._relations = counts
        for name, column in (("weights", shard.weights), ("times", shard.times)):
            if column is not None and len(column):
                low, high, total = column.min(), column.max(), column.sum(dtype=np.float64)
                old = self._ranges.get(name, [low, high, 0.0])
                self._ranges[name] = [min(old[0], low), max(old[1], high), old[2] + total]

    def isolated(self) -> int:
        touched = self.degrees if self.in_degrees is None else self.degrees + self.in_degrees
        return int(np.count_nonzero(touched == 0))

    def components(self) -> tuple[int, int]:
        sizes = np.bincount(self._components.component_labels(self._forest))
        return len(sizes), int(sizes.max(initial=0))

    def relation_counts(self, names: tuple[str, ...] | None) -> dict[str, int] | None:
        if names is None:
            return None
        counts = np.zeros(len(names), dtype=np.int64)
        counts[: len(self._relations)] = self._relations
        return dict(zip(names, counts.tolist(), strict=True))

    def range_of(self, name: str) -> dict[str, float] | None:
        if name not in self._ranges:
            return None
        low, high, total = self._ranges[name]
        found = {"min": low.item(), "max": high.item()}  # type: ignore[attr-defined]
        if name == "weights":
            found["mean"] = float(total) / int(self.degrees.sum())
        return found


def _features(graph: Graph) -> dict[str, Any] | None:
    entry = graph.manifest.features
    if entry is None:
        return None
    return {
        "kind": entry.kind,
        "width": entry.width,
        "dtype": entry.dtype,
        "sparsity": entry.sparsity(graph.num_nodes),
        "names": graph.manifest.feature_names,
    }


def _labels(graph: Graph) -> dict[str, Any] | None:
    kind = graph.manifest.labels
    if kind is None:
        return None
    known = graph.labelled()
    classes = graph.manifest.classes
    return {
        "kind": kind,
        "labelled": int(np.count_nonzero(known)),
        "classes": None if classes is None else [*classes],
        "splits": {
            name: int(np.count_nonzero(known & graph.split(name))) for name in graph.manifest.splits
        },
    }


def _bytes(graph: Graph) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, entry in graph.manifest.files.items():
        kind = name.partition("/")[0].removesuffix(".parquet")
        sizes[kind] = sizes.get(kind, 0) + entry.bytes
    folder = graph.path / "partition"
    parts = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return sizes | {"partition": parts} if parts else sizes


def _partitions(graph: Graph) -> tuple[dict[str, Any], ...]:
    from penstock.partition.part import partitions

    return tuple({"folder": path.name, **_partition(path, graph)} for path in partitions(graph))


def _partition(path: Path, graph: Graph) -> dict[str, Any]:
    from penstock.partition.manifest import PartitionManifest
    from penstock.partition.report import PartitionReport

    try:
        manifest = PartitionManifest.load(path)
        manifest.check_files(path)
        manifest.check_graph(path, graph.path)
    except GraphError as error:
        return {"unusable": str(error)}
    report = PartitionReport.of(str(path), manifest, 1.0, max(manifest.feature_width, 1)).to_dict()
    names = ("k", "made_by", "cut_share", "replication", "load_imbalance")
    return {name: report[name] for name in names}


def command(
    graph: Annotated[ClientPath, Parameter(help="a graph's directory")],
    /,
    *,
    output: Output = Output(),
) -> None:
    """Show counts, degrees, components, features, size and partitions of a graph."""
    output.show(info(graph, quiet=output.quiet))
