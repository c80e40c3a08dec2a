"""Degree distributions of the graphs that a run made, and how good their partitions are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.graph import Graph, load_npy
from penstock.pipelines.report.charts import Chart, Section, Series, Table, table, thinned
from penstock.pipelines.report.sections.outputs import StageOutput
from penstock.pipelines.report.values import amount, mappings, shown_number, text

_EXACT = 16  # degrees below have one bin each; above, bins are wider by their share
_WIDER = math.sqrt(2)
_MOST_SHARDS = 64
_ROWS = 1 << 22  # read at once
_MOST_BARS = 40


@dataclass
class Degrees:
    """Nodes by degree: bin ``i`` counts degrees ``edges[i] .. edges[i + 1] - 1``."""

    edges: Array = field(default_factory=lambda: _bin_edges())
    counts: Array = field(init=False)
    nodes: int = 0
    total: int = 0
    largest: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.edges) - 1, np.int64)

    def add(self, degrees: Array) -> None:
        """Count the degrees of some nodes."""
        if len(degrees):
            bins = np.searchsorted(self.edges, degrees, side="right") - 1
            self.counts += np.bincount(bins, minlength=len(self.counts))
            self.nodes += len(degrees)
            self.total += int(degrees.sum())
            self.largest = max(self.largest, int(degrees.max()))


def _bin_edges() -> Array:
    found = list(range(_EXACT + 1))
    while found[-1] < 1 << 62:
        found.append(math.ceil(found[-1] * _WIDER))
    return np.array(found, np.int64)


def degree_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return the degree distribution of every graph."""
    charts = [
        _degree_chart(one.name, Graph.open(one.at))
        for one in outputs
        if one.format == "penstock-graph" and one.at is not None
    ]
    return Section("Degrees", tuple(charts)) if charts else None


def degrees_of(graph: Graph) -> tuple[Degrees, bool]:
    """Count the out-degrees of a graph, and return whether all shards were counted."""
    found = Degrees()
    chosen = thinned(graph.num_shards, _MOST_SHARDS)
    for number in chosen:
        indptr = load_npy(Path(graph.path) / "shards" / f"{number:05d}" / "indptr.npy")
        for start in range(0, len(indptr) - 1, _ROWS):
            found.add(np.diff(indptr[start : start + _ROWS + 1]))
    return found, len(chosen) == graph.num_shards


def _degree_chart(name: str, graph: Graph) -> Chart:
    found, whole = degrees_of(graph)
    what = "out-degree" if graph.manifest.directed else "degree"
    filled = [i for i in range(len(found.counts)) if found.counts[i]]
    rows, x, y = [], [], []
    for i in filled:
        low, high, count = int(found.edges[i]), int(found.edges[i + 1]) - 1, int(found.counts[i])
        spread = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        rows.append((spread, f"{count:,}", f"{100 * count / found.nodes:.3g} %"))
        if low:  # zero has no place on a logarithmic axis
            x.append(math.sqrt(low * high))
            y.append(count / (high - low + 1))
    alone = int(found.counts[0])
    mean = found.total / found.nodes if found.nodes else 0.0
    about = (
        f"{found.nodes:,} nodes, mean {what} {mean:.3g}, largest {found.largest:,}; "
        f"{alone:,} without {'an out-edge' if graph.manifest.directed else 'a neighbour'}. "
        "Both axes are logarithmic; of wide bins, nodes for each degree in them."
    )
    if not whole:
        about += f" Counted in {_MOST_SHARDS} of {graph.num_shards:,} shards."
    return Chart(
        "lines", f"{name}: {what} distribution", about, what, "nodes",
        (Series("nodes", tuple(x), tuple(y)),) if x else (),
        table(f"{name}: nodes by {what}", (what.capitalize(), "Nodes", "Share"), rows),
        log=(True, True),
    )  # fmt: skip


# Partitions


def partition_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return how even the partitions are, and what they cut."""
    parts: list[Chart | Table] = []
    for one in outputs:
        found = mappings(one.report.get("parts"))
        if found and (one.job == "partition" or one.format == "penstock-partition"):
            parts += [_summary(one, found), *_part_charts(one, found)]
    return Section("Partitions", tuple(parts)) if parts else None


def _summary(one: StageOutput, parts: list[dict[str, object]]) -> Table:
    nodes, edges, ghosts, cut = (
        [amount(part.get(name)) or 0.0 for part in parts]
        for name in ("nodes", "edges", "ghosts", "cut")
    )
    rows = [
        ("parts", shown_number(len(parts))),
        ("made by", text(one.report.get("made_by"))),
        ("cut edges", f"{sum(cut):,.0f} ({_percent(sum(cut), sum(edges))} of the edges)"),
        ("ghosts", f"{sum(ghosts):,.0f}"),
        ("stored nodes over nodes", _over(sum(nodes) + sum(ghosts), sum(nodes))),
        ("nodes of the fullest part over the mean", _over(max(nodes) * len(parts), sum(nodes))),
        ("edges of the fullest part over the mean", _over(max(edges) * len(parts), sum(edges))),
    ]
    return table(f"{one.name}: quality", ("What", "Value"), rows)


def _part_charts(one: StageOutput, parts: list[dict[str, object]]) -> list[Chart]:
    columns = {
        name: [amount(part.get(name)) or 0.0 for part in parts]
        for name in ("nodes", "ghosts", "edges", "cut", "sends")
    }
    rows = [
        (f"part {i}", *(f"{columns[name][i]:,.0f}" for name in columns)) for i in range(len(parts))
    ]
    drawn = range(min(len(parts), _MOST_BARS))
    names = tuple(f"part {i}" for i in drawn)
    some = f" The first {_MOST_BARS} of {len(parts):,} parts." if len(parts) > _MOST_BARS else ""
    inner = [max(e - c, 0.0) for e, c in zip(columns["edges"], columns["cut"], strict=True)]

    def bars(title: str, about: str, *pairs: tuple[str, list[float]]) -> Chart:
        series = tuple(Series(what, tuple(values[i] for i in drawn)) for what, values in pairs)
        heads = ("Part", "Nodes", "Ghosts", "Edges", "Cut edges", "Rows sent")
        return Chart(
            "bars", f"{one.name}: {title}", about + some, title.split()[0], "", series,
            table(f"{one.name}: the parts", heads, rows), categories=names,
        )  # fmt: skip

    return [
        bars("nodes of each part", "Owned nodes, and ghosts: nodes of other parts that it reads.",
             ("owned", columns["nodes"]), ("ghosts", columns["ghosts"])),
        bars("edges of each part", "Edges within the part, and cut ones, whose other end another "
             "part owns.", ("within", inner), ("cut", columns["cut"])),
    ]  # fmt: skip


def _percent(some: float, whole: float) -> str:
    return f"{100 * some / whole:.3g} %" if whole else "none"


def _over(some: float, whole: float) -> str:
    return f"{some / whole:.4g}" if whole else "none"
