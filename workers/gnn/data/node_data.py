"""Features, labels and splits of one rank's nodes, checked before use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import lists_of
from penstock.csr import offsets_of
from penstock.errors import CorruptFile, PenstockError, UsageError
from penstock.graph import SPLITS, Graph, load_npy
from penstock.kernels import kernel
from penstock.manifest import Manifest
from penstock.partition.part import Part
from penstock.splits import own_splits

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_PIECE = 1 << 22  # values read at once
_TRAIN = SPLITS.index("train")


@dataclass(frozen=True, eq=False)
class NodeData:
    """One rank's nodes as stored, None if missing; checked, they are as in ``LocalGraph``.

    ids     (rows,) int64: numbers in the whole graph
    labels  numbers; or (indptr, classes, labelled) if a node has several classes
    columns (features,) int64: which of the graph's features these are; None: all
    """

    ids: Array
    features: Any
    labels: Any = None
    splits: Any = None
    columns: Array | None = None

    def reordered(self, order: Array) -> NodeData:
        """Return rows in another order."""
        labels = self.labels
        if isinstance(labels, tuple):
            indptr, classes, known = labels
            moved = kernel("halo", classes).gather_rows(indptr, order, classes)
            labels = offsets_of(np.diff(indptr)[order]), moved, known[order]
        elif labels is not None:
            labels = labels[order]
        if isinstance(self.features, np.ndarray):
            features = np.take(self.features, order, axis=0)
        else:
            features = self.features[order]
        ids, splits = self.ids[order], self.splits[order]
        return replace(self, ids=ids, features=features, labels=labels, splits=splits)


def labelled(labels: Any) -> Array:
    """Return which nodes have a label: (rows,) bool; ``labels`` are as in ``LocalGraph``."""
    if isinstance(labels, tuple):
        return np.asarray(labels[2])
    return np.asarray(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)


def nodes_of_graph(graph: Graph) -> NodeData:
    """Return a graph's data of all its nodes."""
    manifest = graph.manifest
    labels: Any = None
    if manifest.labels == "multi":
        labels = lists_of(graph.node_column("label").combine_chunks())
    elif manifest.labels is not None:
        labels = np.asarray(graph.labels())
    ids = np.arange(graph.num_nodes, dtype=np.int64)
    return NodeData(ids, graph.features(), labels, own_splits(graph))


def nodes_of_part(part: Part) -> NodeData:
    """Return a part's data of its owned nodes."""
    manifest = part.manifest
    labels: Any = None
    if manifest.labels == "multi":  # part.labels() would make an array per node
        labels = part.label_lists()
    elif manifest.labels is not None:
        labels = part.labels()
    splits = load_npy(part.path / "split.npy") if manifest.splits else None
    return NodeData(part.owned, part.features(), labels, splits)


def with_features(stored: NodeData, columns: tuple[int, ...]) -> NodeData:
    """Return nodes with only these features, in this order."""
    chosen = np.array(columns, np.int64)
    features = stored.features
    return replace(
        stored, features=None if features is None else features[:, chosen], columns=chosen
    )


def read_nodes(
    stored: NodeData,
    manifest: Manifest,
    graph: Path,
    comm: AnyCommunicator,
    *,
    for_training: bool,
) -> NodeData:
    """Return data to train on, or raise if some cannot be used; every rank calls it.

    Without ``for_training`` labels and splits may be missing.
    """
    features = checked_features(stored, manifest, graph)
    labels = None if manifest.labels is None else _labels(stored, manifest, graph)
    splits = np.full(len(stored.ids), -1, np.int8)
    if stored.splits is not None:
        splits = np.asarray(stored.splits, np.int8).view(np.ndarray)
        if len(splits) and not -1 <= splits.min() <= splits.max() < len(SPLITS):
            raise _damaged(graph, "splits", f"-1 .. {len(SPLITS) - 1}", splits)
    if for_training:
        _check_selected(labels, splits, graph, comm)
    return replace(stored, features=features, labels=labels, splits=splits)


# -- features --------------------------------------------------------------------------------------


def checked_features(stored: NodeData, manifest: Manifest, graph: Path) -> Any:
    """Return the features of nodes as float32, or raise if one is missing or not finite."""
    features, entry = stored.features, manifest.features
    assert features is not None
    assert entry is not None
    width = entry.width if stored.columns is None else len(stored.columns)
    if features.shape != (len(stored.ids), width):
        raise CorruptFile(
            f"the features of {graph} have the wrong shape",
            expected=f"({len(stored.ids)}, {width}): one row per node",
            got=str(features.shape),
            remedy="Make the graph and its partition again",
        )
    with np.errstate(over="ignore"):  # overflow becomes infinite, which is found below
        features = features.astype(np.float32, copy=False)
    dense = isinstance(features, np.ndarray)
    if dense:
        features = np.ascontiguousarray(features).view(np.ndarray)
    bad = _first_not_finite(features.reshape(-1) if dense else features.data)
    if bad is not None:
        if dense:
            row, column = divmod(bad, width)
        else:
            row = int(np.searchsorted(features.indptr, bad, side="right")) - 1
            column = int(features.indices[bad])
        value = features[row, column]
        number = column if stored.columns is None else int(stored.columns[column])
        name = number if manifest.feature_names is None else manifest.feature_names[number]
        raise UsageError(
            f"feature {name} of {_node(graph, stored.ids[row])} is {value}",
            expected="finite numbers that float32 can hold",
            remedy="Replace or remove it and make the graph again with penstock etl",
        )
    return features


def _first_not_finite(values: Array) -> int | None:
    for start in range(0, len(values), _PIECE):
        finite = np.isfinite(values[start : start + _PIECE])
        if not finite.all():
            return start + int(np.argmin(finite))
    return None


def _node(graph: Path, number: int) -> str:
    try:
        return f"node {Graph.open(graph).user_ids([int(number)])[0].as_py()!r} of {graph}"
    except (PenstockError, OSError):  # not reachable from here
        return f"node number {number} of {graph}"


def _damaged(graph: Path, what: str, expected: str, got: Array) -> CorruptFile:
    return CorruptFile(
        f"the {what} of {graph} are damaged",
        expected=expected,
        got=f"{got.min()} to {got.max()}",
        remedy="Make the graph and its partition again",
    )


# -- labels ----------------------------------------------------------------------------------------


def _labels(stored: NodeData, manifest: Manifest, graph: Path) -> Any:
    multi = isinstance(stored.labels, tuple)
    count = len(stored.labels[0]) - 1 if multi else len(stored.labels)
    if count != len(stored.ids):
        raise CorruptFile(
            f"{graph} has labels for {count} nodes",
            expected=str(len(stored.ids)),
            remedy="Make the graph and its partition again",
        )
    if manifest.labels == "value":
        values = stored.labels.astype(np.float32, copy=False).view(np.ndarray)
        infinite = np.isinf(values)
        if infinite.any():
            row = int(np.argmax(infinite))
            raise UsageError(
                f"the label of {_node(graph, stored.ids[row])} is {values[row]}",
                expected="a finite number, or none",
            )
        return values
    numbers = np.asarray(stored.labels[1] if multi else stored.labels)
    if multi:
        starts = np.asarray(stored.labels[0])
        if starts[0] != 0 or starts[-1] != len(numbers) or (np.diff(starts) < 0).any():
            raise _damaged(graph, "starts of labels", f"from 0 to {len(numbers)}", starts)
    classes = np.inf if manifest.classes is None else len(manifest.classes)
    outside = (numbers < (0 if multi else -1)) | (numbers >= classes)
    if outside.any():
        at = int(np.argmax(outside))
        row = int(np.searchsorted(stored.labels[0], at, side="right")) - 1 if multi else at
        known = "a class number" if manifest.classes is None else f"one of 0 .. {classes - 1}"
        raise UsageError(
            f"the label of {_node(graph, stored.ids[row])} is not one of the classes",
            expected=known,
            got=str(numbers[at]),
        )
    numbers = numbers.astype(np.int32, copy=False).view(np.ndarray)
    if multi:
        indptr, _, known = stored.labels
        return np.asarray(indptr, np.int64).view(np.ndarray), numbers, np.asarray(known, bool)
    return numbers


def _check_selected(labels: Any, splits: Array, graph: Path, comm: AnyCommunicator) -> None:
    train = splits == _TRAIN
    known = train & labelled(labels)
    counts = np.array([np.count_nonzero(train), np.count_nonzero(known)], np.int64)
    comm.allreduce(counts)
    if not counts[1]:
        raise UsageError(
            f"none of the {counts[0]} nodes of {graph} in the split train has a label",
            remedy="Give them labels, or draw a split of labelled nodes with penstock gnn train "
            "--split",
        )
