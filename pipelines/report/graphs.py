"""Degree distributions of the graphs that a run made, and how good their partitions are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.graph import Graph, load_npy
from penstock.pipelines.report.content import Chart, Table, thinned
from penstock.pipelines.report.outputs import StageOutput

# Degrees below 16 have one bin each; above, every second bin is twice as wide.
EDGES = np.array([*range(16), *np.ceil(2.0 ** np.arange(4, 62.5, 0.5))], np.int64)
_MOST_SHARDS = 64
_ROWS = 1 << 22  # read at once
_MOST_BARS = 40


def degrees(output: StageOutput) -> Iterator[Table]:
    """Return the degree distribution of a graph."""
    if output.format != "penstock-graph" or output.at is None:
        return
    graph = Graph.open(output.at)
    what = "out-degree" if graph.manifest.directed else "degree"
    counts, total, largest = np.zeros(len(EDGES), np.int64), 0, 0
    chosen = thinned(graph.num_shards, _MOST_SHARDS)
    for shard in chosen:
        indptr = load_npy(Path(graph.path) / "shards" / f"{shard:05d}" / "indptr.npy")
        for start in range(0, len(indptr) - 1, _ROWS):
            some = np.diff(indptr[start : start + _ROWS + 1])
            bins = np.searchsorted(EDGES, some, side="right") - 1
            counts += np.bincount(bins, minlength=len(EDGES))
            total, largest = total + int(some.sum()), max(largest, int(some.max()))
    nodes = int(counts.sum())
    rows = []
    for i in np.flatnonzero(counts).tolist():
        low, high, count = int(EDGES[i]), int(EDGES[i + 1]) - 1, int(counts[i])
        middle = low if low == high else math.sqrt(low * high)
        spread = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        # Zero has no place on a logarithmic axis.
        rows.append((middle or None, spread, count, count / (high - low + 1)))
    about = (
        f"{nodes:,} nodes, mean {what} {total / max(nodes, 1):.3g}, largest {largest:,}; "
        f"{counts[0]:,} without {'an out-edge' if graph.manifest.directed else 'a neighbour'}. "
        "Both axes are logarithmic; of wide bins, nodes for each degree in them."
    )
    if len(chosen) < graph.num_shards:
        about += f" Counted in {_MOST_SHARDS} of {graph.num_shards:,} shards."
    heads = ("Middle", what.capitalize(), "Nodes", "Nodes for each degree")
    chart = Chart("lines", what, "nodes", skip=2, log=True)
    yield Table(f"{output.name}: {what} distribution", heads, rows, about, chart)


def partitions(output: StageOutput) -> Iterator[Table]:
    """Return how even a partition is, and what it cuts."""
    parts = output.report.get("parts")
    if not isinstance(parts, list) or not parts or "ghosts" not in parts[0]:
        return
    count = len(parts)
    names = ("nodes", "ghosts", "edges", "cut", "sends")
    nodes, ghosts, edges, cut, sends = ([part[name] for part in parts] for name in names)
    stored = sum(nodes) + sum(ghosts)
    rows = [
        ("parts", count),
        ("made by", output.report.get("made_by")),
        ("cut edges", f"{sum(cut):,} ({100 * sum(cut) / max(sum(edges), 1):.3g} % of the edges)"),
        ("ghosts", f"{sum(ghosts):,}"),
        ("stored nodes over nodes", stored / max(sum(nodes), 1)),
        ("nodes of the fullest part over the mean", max(nodes) * count / max(sum(nodes), 1)),
        ("edges of the fullest part over the mean", max(edges) * count / max(sum(edges), 1)),
    ]
    yield Table(f"{output.name}: quality", ("What", "Value"), rows)
    inner = [whole - some for whole, some in zip(edges, cut, strict=True)]
    titles = [f"part {i}" for i in range(count)]
    some = f" The first {_MOST_BARS} of {count:,} parts." if count > _MOST_BARS else ""
    for title, about, heads, columns in (
        ("nodes of each part", "Owned nodes, and ghosts: nodes of other parts that it reads.",
         ("Rows sent", "Owned", "Ghosts"), (sends, nodes, ghosts)),
        ("edges of each part", "Edges within the part, and cut ones, whose other end another part "
         "owns.", ("Edges", "Within", "Cut"), (edges, inner, cut)),
    ):  # fmt: skip
        drawn = list(zip(titles, *columns, strict=True))[:_MOST_BARS]
        chart = Chart("bars", title.split()[0], skip=1)
        yield Table(f"{output.name}: {title}", ("Part", *heads), drawn, about + some, chart)
