"""Pictures of vectors: some of them on the plane in which they differ most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.limits import available_memory
from penstock.pipelines.report.charts import Chart, Section, Series, table, thinned
from penstock.pipelines.report.sections.communities import (
    groups_of_ids,
    groups_of_nodes,
    open_graph,
)
from penstock.pipelines.report.sections.outputs import StageOutput
from penstock.pipelines.report.values import text

_FITTED, _DRAWN = 20_000, 2_000  # vectors that decide the plane; points
_GROUPS = 9  # that have a colour; all others share one
_MOST_IDS = 5_000_000
_ROW_GROUPS = 8  # of predictions that are read
_LABEL = 60  # characters of a point's label
_OTHERS = "all others"


@dataclass(frozen=True)
class Plane:
    """Vectors on their first two principal components.

    points  (n, 2); shares: of the variance, that of each component
    """

    points: Array
    shares: tuple[float, float]


def principal_plane(values: Array, shown: Array) -> Plane:
    """Project the rows ``shown`` on the two directions in which ``values`` vary most."""
    if not values.size:
        return Plane(np.zeros((len(shown), 2)), (0.0, 0.0))
    values = values.astype(np.float64)
    mean = values.mean(axis=0)
    centred = values - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / max(len(values) - 1, 1))
    two = directions[:, ::-1][:, :2]
    # The sign of a direction is arbitrary: its largest entry is made positive.
    largest = np.abs(two).argmax(axis=0)
    two = two * np.where(two[largest, np.arange(two.shape[1])] < 0, -1.0, 1.0)
    points = np.zeros((len(shown), 2))
    points[:, : two.shape[1]] = (shown.astype(np.float64) - mean) @ two
    whole = float(np.maximum(variances, 0.0).sum())
    found = [float(max(one, 0.0)) / whole if whole else 0.0 for one in variances[::-1][:2]]
    found += [0.0] * (2 - len(found))
    return Plane(points, (found[0], found[1]))


def embedding_section(outputs: Iterable[StageOutput]) -> Section | None:
    """Return a picture of the vectors of every stage that has some."""
    parts: list[Chart | str] = []
    for one in outputs:
        if one.at is None:
            continue
        if one.format == "penstock-vectors" and "files" in one.manifest:
            parts.append(_of_store(one.name, one.at, one.manifest))
        elif one.format == "penstock-predictions" and "embedding" in _names(one.manifest):
            parts.append(_of_predictions(one.name, one.at, one.manifest))
        elif one.format == "penstock-embed":
            parts += _of_training(one.name, one.at)
    return Section("Embeddings", tuple(parts)) if parts else None


def _of_store(name: str, folder: Path, manifest: dict[str, Any]) -> Chart:
    from penstock.arrow import take
    from penstock.pipelines.vectors.store import read_store

    ids, values, _ = read_store(folder)
    rows = _spread(len(values), _FITTED)
    shown = rows[_spread(len(rows), _DRAWN)]
    some = take(ids, shown)
    graph, digest = text(manifest.get("graph")), text(manifest.get("graph_sha256"))
    if not graph and manifest.get("run"):  # exported from a training run, which knows its graph
        graph, digest = _graph_of(Path(text(manifest.get("run"))))
    grouping = groups_of_ids(graph, digest, some)
    labels = [text(one) for one in some.to_pylist()]
    return _chart(name, values[rows], values[shown], labels, grouping, len(values))


def _names(manifest: dict[str, Any]) -> list[str]:
    columns = manifest.get("columns")
    return [text(one) for one in columns] if isinstance(columns, list) else []


def _of_predictions(name: str, folder: Path, manifest: dict[str, Any]) -> Chart:
    """Return the picture of a GNN's embeddings, out of a few row groups of its predictions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.arrow import take

    files = [pq.ParquetFile(file) for file in sorted(folder.glob("*.parquet"))]
    try:
        groups = [(file, i) for file in files for i in range(file.num_row_groups)]
        chosen = [groups[i] for i in thinned(len(groups), _ROW_GROUPS)]
        columns = ["id", "embedding"]
        found = pa.concat_tables([file.read_row_group(i, columns=columns) for file, i in chosen])
        count = sum(file.metadata.num_rows for file in files)
    finally:
        for file in files:
            file.close()
    rows = _spread(len(found), _FITTED)
    shown = rows[_spread(len(rows), _DRAWN)]
    lists = take(found["embedding"].combine_chunks(), rows)
    values = np.asarray(lists.flatten()).reshape(len(rows), -1)
    ids = take(found["id"].combine_chunks(), shown)
    graph, digest = text(manifest.get("graph")), text(manifest.get("graph_sha256"))
    labels = [text(one) for one in ids.to_pylist()]
    drawn = values[_spread(len(rows), _DRAWN)]
    return _chart(name, values, drawn, labels, groups_of_ids(graph, digest, ids), count)


def _graph_of(run: Path) -> tuple[str, str]:
    from penstock.pipelines.report.sections.outputs import manifest_of

    body = manifest_of(run)
    return text(body.get("graph")), text(body.get("graph_sha256"))


def _of_training(name: str, folder: Path) -> list[Chart | str]:
    """Return the picture of a checkpoint's vectors, of the first partition if it has several."""
    from penstock.arrow import read_column, take
    from penstock.errors import InputError
    from penstock.pipelines.embed.run import Run, checkpoint_name
    from penstock.workers.embed.source import TableSource, read_checkpoint
    from penstock.workers.embed.storage.versions import BEST, Checkpoint
    from penstock.workers.embed.warm import IDS

    run = Run.load(folder)

    def chosen(source: TableSource, found: Checkpoint) -> tuple[Array, Array, Array] | None:
        needed = found.geometry.slot_bytes(1)
        if needed > available_memory() // 2:
            return None
        _, part = next(source.parts())
        nodes = np.asarray(source.layout.nodes_of(0))[: len(part)]
        rows = _spread(len(part), _FITTED)
        drawn = rows[_spread(len(rows), _DRAWN)]
        return nodes[drawn].astype(np.int64), np.array(part[rows]), np.array(part[drawn])

    try:
        checkpoint = checkpoint_name(folder, BEST, run)
        taken = read_checkpoint(folder / "checkpoints", checkpoint, chosen)
    except InputError:
        return []  # no epoch is whole yet: there is nothing to show
    if taken is None:
        return [f"{name}: no picture, a partition of its vectors is larger than the memory."]
    shown_nodes, fitted, shown = taken
    graph = open_graph(run.graph, run.graph_sha256)
    grouping = None if graph is None else groups_of_nodes(graph, shown_nodes)
    labels = [str(number) for number in shown_nodes]
    if run.nodes <= _MOST_IDS:
        ids = take(read_column(folder / IDS, "id").combine_chunks(), shown_nodes)
        labels = [text(one) for one in ids.to_pylist()]
    return [_chart(name, fitted, shown, labels, grouping, run.nodes)]


def _spread(count: int, most: int) -> Array:
    """Return which of ``count`` rows stand for all, evenly spread."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).round().astype(np.int64)


def _chart(
    name: str, fitted: Array, shown: Array, labels: list[str],
    grouping: tuple[str, list[str]] | None, count: int,
) -> Chart:  # fmt: skip
    good = np.asarray(np.isfinite(shown).all(axis=1))
    plane = principal_plane(fitted[np.isfinite(fitted).all(axis=1)], shown[good])
    labels = [one for one, kept in zip(labels, good, strict=True) if kept]
    by, groups = grouping or ("", [""] * len(good))
    groups = [one for one, kept in zip(groups, good, strict=True) if kept]
    large = [group for group, _ in Counter(groups).most_common(_GROUPS)]
    if len(set(groups)) == _GROUPS + 1:
        large = sorted(set(groups), key=groups.count, reverse=True)
    series, rows = [], []
    for group in [*sorted(large, key=_natural), *([None] if set(groups) - set(large) else [])]:
        inside = [i for i, one in enumerate(groups)
                  if one == group or (group is None and one not in large)]  # fmt: skip
        points = plane.points[inside]
        title = _OTHERS if group is None else group or "all"
        series.append(
            Series(title, tuple(points[:, 0].tolist()), tuple(points[:, 1].tolist()),
                   tuple(_described(labels[i], groups[i]) for i in inside))
        )  # fmt: skip
        middle, spread = points.mean(axis=0), points.std(axis=0)
        rows.append(
            (title, f"{len(inside):,}", f"{middle[0]:.4g}, {middle[1]:.4g}",
             f"{spread[0]:.3g}, {spread[1]:.3g}")
        )  # fmt: skip
    one, two = (f"{100 * share:.1f} %" for share in plane.shares)
    about = (
        f"{len(labels):,} of {count:,} vectors on their first two principal components, which "
        f"have {one} and {two} of the variance" + (f"; coloured by {by}." if by else ".")
    )
    heads = (by.capitalize() or "Group", "Points", "Middle", "Standard deviation")
    return Chart(
        "points", f"{name}: vectors", about, f"component 1 ({one})",
        f"component 2 ({two})", tuple(series),
        table(f"{name}: where the groups lie", heads, rows), equal=True,
    )  # fmt: skip


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which class 2 comes before class 10."""
    return [(int(one), "") if one.isdecimal() else (-1, one) for one in re.split(r"(\d+)", name)]


def _described(label: str, group: str) -> str:
    label = label if len(label) <= _LABEL else f"{label[:_LABEL]}…"
    group = group if len(group) <= _LABEL else f"{group[:_LABEL]}…"
    return f"{label} ({group})" if group else label
