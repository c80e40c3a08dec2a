"""Pictures of vectors: some of them on the plane in which they differ most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import PenstockError
from penstock.graph import Graph, load_npy
from penstock.limits import available_memory
from penstock.manifest import graph_digest
from penstock.pipelines.report.content import Chart, Table, thinned
from penstock.pipelines.report.outputs import StageOutput, manifest_of

_FITTED, _DRAWN = 20_000, 2_000  # vectors that decide the plane; points
_GROUPS = 10  # that have a colour; if there are more, all others share one
_MOST_NODES = 5_000_000  # of a graph whose ids or labels are read for a picture
_ROW_GROUPS = 8  # of predictions that are read
_LABEL = 60  # characters of a point's label


def embeddings(output: StageOutput) -> Iterator[Table | str]:
    """Return a picture of a stage's vectors, if it has some."""
    manifest, at = output.manifest, output.at
    if at is None:
        return
    if output.format == "penstock-vectors" and "files" in manifest:
        yield _of_store(output.name, at, manifest)
    elif output.format == "penstock-predictions" and "embedding" in manifest["columns"]:
        yield _of_predictions(output.name, at, manifest)
    elif output.format == "penstock-embed":
        yield from _of_training(output.name, at)


def _of_store(name: str, folder: Path, manifest: dict[str, Any]) -> Table:
    from penstock.arrow import take
    from penstock.pipelines.vectors.store import read_store

    ids, values, _ = read_store(folder)
    some, drawn = _spread(len(values))
    labels = take(ids, drawn)
    if not manifest.get("graph") and manifest.get("run"):  # exported from a run: it knows its graph
        manifest = manifest_of(Path(manifest["run"]))
    return _picture(name, values[some], values[drawn], labels, manifest, len(values))


def _of_predictions(name: str, folder: Path, manifest: dict[str, Any]) -> Table:
    """Return the picture of a GNN's embeddings, out of a few row groups of its predictions."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    from penstock.arrow import take

    dataset = ds.dataset(folder, format="parquet")
    groups = [group for file in dataset.get_fragments() for group in file.split_by_row_group()]
    chosen = [groups[i] for i in thinned(len(groups), _ROW_GROUPS)]
    found = pa.concat_tables([one.to_table(columns=["id", "embedding"]) for one in chosen])
    found, count = found.combine_chunks(), dataset.count_rows()
    some, drawn = _spread(len(found))
    fitted, shown = (
        np.asarray(take(found["embedding"].combine_chunks(), rows).flatten()).reshape(len(rows), -1)
        for rows in (some, drawn)
    )
    ids = take(found["id"].combine_chunks(), drawn)
    return _picture(name, fitted, shown, ids, manifest, count)


def _of_training(name: str, folder: Path) -> Iterator[Table | str]:
    """Return the picture of a checkpoint's vectors, of the first partition if it has several."""
    import pyarrow as pa

    from penstock.arrow import read_column, take
    from penstock.errors import InputError
    from penstock.pipelines.embed.run import Run, checkpoint_of
    from penstock.workers.embed.source import TableSource, read_checkpoint
    from penstock.workers.embed.storage.versions import BEST, Checkpoint
    from penstock.workers.embed.warm import IDS

    run = Run.load(folder)

    def chosen(source: TableSource, found: Checkpoint) -> tuple[Array, Array, Array] | None:
        if found.geometry.bytes > available_memory() // 2:
            return None
        _, part = next(source.parts())
        some, drawn = _spread(len(part))
        nodes = np.asarray(source.layout.nodes_of(0))[drawn].astype(np.int64)
        return nodes, np.array(part[some]), np.array(part[drawn])

    try:
        checkpoint = checkpoint_of(folder, BEST, run).name
        taken = read_checkpoint(folder / "checkpoints", checkpoint, chosen)
    except InputError:
        return  # no epoch is whole yet: there is nothing to show
    if taken is None:
        yield f"{name}: no picture, a partition of its vectors is larger than the memory."
        return
    nodes, fitted, shown = taken
    few = run.nodes <= _MOST_NODES
    ids = take(read_column(folder / IDS, "id").combine_chunks(), nodes) if few else pa.array(nodes)
    about = {"graph": run.graph, "graph_sha256": run.graph_sha256}
    yield _picture(name, fitted, shown, ids, about, run.nodes)


def _spread(count: int) -> tuple[Array, Array]:
    """Return which of ``count`` rows decide the plane, and which are drawn."""
    fitted, drawn = (np.array(thinned(count, most), np.int64) for most in (_FITTED, _DRAWN))
    return fitted, drawn


def _picture(
    name: str, fitted: Array, drawn: Array, ids: Any, about: dict[str, Any], count: int
) -> Table:
    """Return a picture.

    about  has graph and graph_sha256, of the graph that the vectors were trained on
    """
    by, groups = _groups(str(about.get("graph")), str(about.get("graph_sha256")), ids)
    good = np.asarray(np.isfinite(drawn).all(axis=1))
    finite = fitted[np.isfinite(fitted).all(axis=1)]
    points, shares = principal_plane(finite, np.where(good[:, None], drawn, 0))
    few = len(set(groups)) <= _GROUPS
    large = [group for group, _ in Counter(groups).most_common(_GROUPS if few else _GROUPS - 1)]
    order = {group: i for i, group in enumerate(sorted(large, key=_natural))}
    named = [group if group in order else "all others" for group in groups]
    labels = [
        str(one)[:_LABEL] + (f" ({group[:_LABEL]})" if by else "")
        for one, group in zip(ids.to_pylist(), groups, strict=True)
    ]
    every = sorted(
        (order.get(group, len(order)), group, float(x), float(y), label)
        for group, (x, y), label, kept in zip(named, points, labels, good, strict=True)
        if kept
    )
    counted = Counter(group for _, group, *_ in every)
    rows = []
    for group, many in counted.items():
        x, y = (np.array([one[axis] for one in every if one[1] == group]) for axis in (2, 3))
        rows.append(
            (group, many, f"{x.mean():.4g}, {y.mean():.4g}", f"{x.std():.3g}, {y.std():.3g}")
        )
    one, two = (f"{100 * share:.1f} %" for share in shares)
    text = (
        f"{len(every):,} of {count:,} vectors on their first two principal components, which have "
        f"{one} and {two} of the variance" + (f"; coloured by {by}." if by else ".")
    )
    heads = (by.capitalize() or "Group", "Points", "Middle", "Standard deviation")
    chart = Chart(
        "points", f"component 1 ({one})", f"component 2 ({two})", points=[one[1:] for one in every]
    )
    return Table(f"{name}: vectors", heads, rows, text, chart)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which class 2 comes before class 10."""
    return [(int(one), "") if one.isdecimal() else (-1, one) for one in re.split(r"(\d+)", name)]


def principal_plane(values: Array, shown: Array) -> tuple[Array, list[float]]:
    """Return the rows ``shown`` on the two directions in which ``values`` vary most, and the share
    of the variance that each has."""
    points, shares = np.zeros((len(shown), 2)), [0.0, 0.0]
    if not values.size:
        return points, shares
    values = values.astype(np.float64)
    mean = values.mean(axis=0)
    variances, directions = np.linalg.eigh(
        np.cov(values, rowvar=False, ddof=0).reshape(len(mean), -1)
    )
    two = directions[:, ::-1][:, :2]
    # The sign of a direction is arbitrary: its largest entry is made positive.
    two = two * np.where(two[np.abs(two).argmax(axis=0), np.arange(two.shape[1])] < 0, -1.0, 1.0)
    points[:, : two.shape[1]] = (shown.astype(np.float64) - mean) @ two
    whole = max(float(variances.sum()), 1e-300)
    found = [max(float(one), 0.0) / whole for one in variances[::-1][:2]]
    return points, (found + shares)[:2]


# What nodes are coloured by


def _groups(path: str, digest: str, ids: Any) -> tuple[str, list[str]]:
    """Return what nodes are coloured by, and the group of each: nothing, if the graph is unknown.

    A graph that has changed since does not help.
    """
    none = "", ["all"] * len(ids)
    try:
        if graph_digest(Path(path)) != digest:
            return none
        graph = Graph.open(path)
        if graph.num_nodes > _MOST_NODES or graph.manifest.graphs is not None:
            return none
        nodes = graph.internal_ids(ids)
    except (OSError, ValueError, PenstockError):
        return none
    if (nodes < 0).any():
        return none
    parts = sorted((Path(path) / "partition").glob("k*/assignment.npy"))
    if graph.manifest.labels in ("class", "multi"):
        labels = graph.labels()
        if isinstance(labels, list):  # several labels: the first one of each
            return "first label", [_class(graph, (labels[node] or [-1])[0]) for node in nodes]
        return "label", [_class(graph, int(number)) for number in labels[nodes]]
    if parts:
        return "part", [f"part {number}" for number in load_npy(parts[0])[nodes]]
    return none


def _class(graph: Graph, number: int) -> str:
    names = graph.manifest.classes or ()
    if number < 0:
        return "no label"
    return names[number] if number < len(names) else f"class {number}"
