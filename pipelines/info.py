"""``penstock info``: what a graph holds, from its manifest and one pass over its shards."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import GraphError
from penstock.graph import Graph
from penstock.moments import time_text
from penstock.paths import shown
from penstock.pipelines.display import CountsReport
from penstock.pipelines.job.declare import Context, job
from penstock.progress import Progress
from penstock.sizes import format_bytes, listed, need_memory

Lines = Iterator[tuple[str, str]]
_WIDTH = 80  # of a line
_BAR = 36  # characters of the longest bar
_SHOWN = 8  # relations and classes before the rest is summed up


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
    """Everything ``penstock info`` reports; ``text()`` for people, ``to_dict()`` for programs."""

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
    types: dict[str, int]
    splits: dict[str, int]
    heldout: dict[str, int]
    graphs: int | None
    bytes: dict[str, int]
    partitions: tuple[dict[str, Any], ...]
    made: dict[str, Any]

    def text(self) -> str:
        """Return aligned lines for a terminal or a log."""
        return _text(self.to_dict())


@job("info", clustered=False)
def info(context: Context, graph: Graph) -> GraphInfo:
    """Show counts, degrees, components, features, size and partitions of a graph.

    Edges are read once, shard by shard; memory is a few numbers per node, for any number of edges.

    Parameters
    ----------
    graph
        a graph's directory

    Examples
    --------
    >>> info("g").components
    """
    manifest = graph.manifest
    need_memory(
        graph.num_nodes * (24 if manifest.directed else 16),
        f"counting degrees and components of {graph.path}",
        remedy="Run it on a machine with more memory",
    )
    edges = _EdgePass(graph)
    with Progress(
        "read edges", total=graph.num_edges, unit="edges", quiet=context.quiet
    ) as progress:
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
        features=features_of(graph),
        labels=labels_of(graph),
        types=manifest.types,
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


def features_of(graph: Graph) -> dict[str, Any] | None:
    """Return what the features of a graph are."""
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


def labels_of(graph: Graph) -> dict[str, Any] | None:
    """Return what the labels of a graph are, and how many nodes have one."""
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
    from penstock.pipelines.partition.report import PartitionReport

    try:
        manifest = PartitionManifest.load(path)
        manifest.check_files(path)
        manifest.check_graph(path, graph.path)
    except GraphError as error:
        return {"unusable": str(error)}
    report = PartitionReport.of(str(path), manifest, 1.0, max(manifest.feature_width, 1)).to_dict()
    names = ("k", "made_by", "cut_share", "replication", "load_imbalance")
    return {name: report[name] for name in names}


# How it looks: one label a line, numbers aligned, no colours


def _text(found: dict[str, Any]) -> str:
    """Return the lines for the content of ``GraphInfo.to_dict``."""
    lines = [shown(found["path"]), ""]
    rows = [*_counts(found), *_edge_data(found), *node_lines(found), *_storage(found)]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        # A table's line keeps its leading blanks; prose is wrapped next to its label.
        wrapped = [value] if value.startswith(" ") else textwrap.wrap(value, _WIDTH - width - 4)
        for line in wrapped or [""]:
            lines.append(f"  {label:<{width}}  {line}".rstrip())
            label = ""
    lines += _histogram("out-degree" if found["directed"] else "degree", found["degrees"])
    if found["in_degrees"] is not None:
        lines += _histogram("in-degree", found["in_degrees"])
    return "\n".join(lines)


def _counts(found: dict[str, Any]) -> Lines:
    nodes = found["nodes"]
    yield "nodes", f"{nodes:,}"
    if found["directed"]:
        yield "edges", f"{found['edges']:,} directed"
    else:
        yield "edges", f"{found['edges']:,} undirected, stored as {found['arcs']:,} directed edges"
    if found["self_loops"]:
        yield "self loops", f"{found['self_loops']:,}"
    yield "isolated", f"{found['isolated']:,} nodes{_share(found['isolated'], nodes)}"
    largest = found["largest_component"]
    weak = "weakly connected, " if found["directed"] else ""
    yield (
        "components",
        f"{found['components']:,}, {weak}the largest of {largest:,} nodes{_share(largest, nodes)}",
    )
    if found["graphs"] is not None:
        yield "zoo", f"{found['graphs']:,} graphs, {nodes / max(found['graphs'], 1):.1f} nodes each"


def _edge_data(found: dict[str, Any]) -> Lines:
    if found["weights"] is not None:
        weights = found["weights"]
        mean = f"mean {weights['mean']:.6g}"
        yield "weights", f"{weights['min']:.6g} to {weights['max']:.6g}, {mean}"
    if found["times"] is not None:
        ends = (found["times"][end] for end in ("min", "max"))
        first, last = (time_text(end, timestamp=found["timestamps"]) for end in ends)
        yield "times", f"{first} to {last}"
    if found["relations"] is not None:
        yield "relations", f"{len(found['relations']):,}"
        yield from _most_frequent(found["relations"])
    for name, count in found["heldout"].items():
        yield f"{name} edges", f"{count:,} held out"


def node_lines(found: Mapping[str, Any]) -> Lines:
    """Return the lines on features, labels and splits of the nodes."""
    features, labels = found["features"], found["labels"]
    if found["types"]:
        yield "types", ", ".join(f"{name} {count:,}" for name, count in found["types"].items())
    if features is not None:
        zeros = f"{100 * features['sparsity']:.3g} % zeros"
        yield (
            "features",
            f"{features['width']:,} × {features['dtype']}, {features['kind']}, {zeros}",
        )
        if (names := features["names"]) is not None:
            yield "", listed(names, _SHOWN)
    if labels is not None:
        kinds = {"class": "one of", "multi": "any of", "value": "a value"}
        what = kinds[labels["kind"]]
        if labels["classes"] is not None:
            what += f" {len(labels['classes']):,} classes ({listed(labels['classes'], _SHOWN)})"
        labelled = labels["labelled"]
        share = _share(labelled, found["nodes"])
        yield "labels", f"{what}, {labelled:,} labelled nodes{share}"
    if any(found["splits"].values()):
        known = found["splits"] if labels is None else labels["splits"]
        yield (
            "split",
            ", ".join(
                f"{name} {count:,}"
                + (f" ({known[name]:,} labelled)" if known[name] != count else "")
                for name, count in found["splits"].items()
            ),
        )


def _storage(found: dict[str, Any]) -> Lines:
    sizes = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in found["bytes"].items())
    shards = f"{found['shards']:,} shard" + "s" * (found["shards"] != 1)
    yield "on disk", f"{format_bytes(sum(found['bytes'].values()))} in {shards}: {sizes}"
    for label, body in zip(
        ["partitions", *[""] * len(found["partitions"])], found["partitions"], strict=False
    ):
        yield label, _partition_line(body)
    if found["made"]:
        yield "made", _flat(found["made"])


def _partition_line(body: Mapping[str, Any]) -> str:
    if "unusable" in body:
        return f"{body['folder']}: {body['unusable']}"
    return (
        f"{body['folder']}: {body['made_by']}, {100 * body['cut_share']:.3g} % of edges cut, "
        f"replication {body['replication']:.3g}, load imbalance {body['load_imbalance']:.3g}"
    )


def _flat(made: Mapping[str, Any]) -> str:
    """Show scalars as ``key value``; what is nested is for ``--json``."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in made.items()
        if isinstance(value, str | int | float)
    )


def _most_frequent(counts: Mapping[str, int]) -> Lines:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    total = sum(counts.values())
    for name, count in ordered[:_SHOWN]:
        yield "", f"{count:>13,}{_share(count, total):>10}  {name}"
    rest = sum(count for _, count in ordered[_SHOWN:])
    if rest:
        yield "", f"{rest:>13,}{_share(rest, total):>10}  in {len(ordered) - _SHOWN:,} others"


def _histogram(title: str, degrees: Mapping[str, Any]) -> list[str]:
    quantiles = "  ".join(f"{name} {degrees[name]:,}" for name in ("min", "median", "p99", "max"))
    lines = ["", f"  {title}  {quantiles}  mean {degrees['mean']:.2f}"]
    names = [f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b, _ in degrees["histogram"]]
    most = max((count for *_, count in degrees["histogram"]), default=1)
    total = sum(count for *_, count in degrees["histogram"])
    width = max(map(len, names), default=0)
    for name, (*_, count) in zip(names, degrees["histogram"], strict=True):
        share = _share(count, total).strip(" ()")
        lines.append(f"  {name:>{width}}  {_bar(count / most):<{_BAR}}  {count:>13,}  {share:>7}")
    return lines


def _bar(share: float) -> str:
    """Return a bar in eighths of a character; what is not zero is seen."""
    eighths = round(share * _BAR * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _share(part: int, whole: int) -> str:
    if whole == 0:
        return ""
    share = 100 * part / whole
    # Never round "almost all" up to all, nor "a few" down to none.
    text = f"{share:.1f}"
    if 0 < part < whole:
        text = "<0.1" if share < 0.05 else ">99.9" if share >= 99.95 else text
    return f" ({text} %)"


command = info.command
