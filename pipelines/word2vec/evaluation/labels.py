"""Vectors of nodes against labels: one-vs-rest logistic regression, as DeepWalk's paper does.

For each training share and each random split, a classifier trains on the share and predicts the
rest. It predicts as many classes per node as the node has labels, those with the highest scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.errors import InputError, UsageError
from penstock.graph import Graph
from penstock.pipelines.tables.read import read_columns
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.evaluation.options import EvaluateOptions
from penstock.threads import spread

if TYPE_CHECKING:
    import pyarrow as pa

_ITERATIONS = 500
_GRADIENT = 1e-4  # gradient of the mean loss of a class that counts as zero
_SCORE = 64  # bytes per row and class while the loss is computed: margins, slopes and others
_WEIGHT = 8 * 30  # bytes per weight: ten steps and gradients of L-BFGS, and its work arrays


@dataclass(frozen=True)
class ShareResult:
    """F1 of one training share: means of all splits, and standard deviations."""

    share: float
    micro_f1: float
    macro_f1: float
    micro_deviation: float
    macro_deviation: float


@dataclass(frozen=True)
class LabelsResult:
    """F1 by training share.

    nodes, unknown  labelled ids with a vector, and without
    """

    file: str
    nodes: int
    unknown: int
    classes: int
    shares: list[ShareResult]


@dataclass(frozen=True)
class Labels:
    """The labels of ids that have a vector.

    rows         of the vectors, each once
    of, numbers  of every label: the position of its row in ``rows``, and its class
    unknown      labelled ids without a vector
    """

    file: str
    rows: Array
    of: Array
    numbers: Array
    classes: list[Any]
    unknown: int

    def targets(self) -> Array:
        """Return the classes of each row as a mask: (rows, classes)."""
        mask = np.zeros((len(self.rows), len(self.classes)), bool)
        mask[self.of, self.numbers] = True
        return mask

    def memory(self, dimension: int, splits: int) -> int:
        """Return the approximate bytes of the classifiers; ``splits`` of a share at a time."""
        rows, classes = len(self.rows), len(self.classes)
        features = rows * (8 * dimension + classes)
        split = features + classes * (rows * _SCORE + (dimension + 1) * _WEIGHT)
        return features + splits * split


def evaluate_labels(
    vectors: Vectors, labels: Labels, options: EvaluateOptions, advance: Callable[[int], None]
) -> LabelsResult:
    """Return F1 by training share; ``advance`` is called for every trained classifier."""
    from threadpoolctl import threadpool_limits

    features, targets = vectors.values[labels.rows].astype(np.float64), labels.targets()
    f1 = np.empty((len(options.shares), options.repeats, 2))

    def repeat(number: int) -> None:
        order = _shuffled(len(features), options.seed, number)
        weights = None
        for at in np.argsort(options.shares):
            cut = round(options.shares[at] * len(features))
            train, rest = order[:cut], order[cut:]
            # Start from the share before: the minimum does not depend on the start.
            weights = fit(features[train], targets[train], options.l2, weights)
            scores = decide(features[rest], weights)
            scores[:, ~targets[train].any(axis=0)] = -np.inf
            f1[at, number] = f1_scores(targets[rest], predict_top(scores, targets[rest].sum(1)))
            advance(1)

    with threadpool_limits(1):  # every split has a thread of its own
        spread(repeat, range(options.repeats))
    shares = [
        ShareResult(share, *map(float, (*f1[at].mean(axis=0), *f1[at].std(axis=0))))
        for at, share in enumerate(options.shares)
    ]
    return LabelsResult(labels.file, len(features), labels.unknown, len(labels.classes), shares)


# -- labels --------------------------------------------------------------------------------------


def read_labels(vectors: Vectors, path: Path, shares: Sequence[float]) -> Labels:
    """Return the labels of a graph or a table; raise if a share of them is empty.

    Ids without a label, or with an empty list, are left out; an id with several rows has the
    classes of all of them.
    """
    import pyarrow.compute as pc

    ids, column = _columns(path)
    found = vectors.find(ids)
    of, flat = _pairs(column, path)
    classes = flat.unique()
    labelled = np.zeros(len(ids), bool)
    labelled[of] = True
    if not labelled.any():
        raise InputError(
            f"{path} has no label",
            expected="a class, or a list of classes, per id: neither null nor negative",
            got=f"{len(ids):,} ids without one",
        )
    known = labelled & (found >= 0)
    if not known.any():
        raise InputError(
            f"none of {int(labelled.sum()):,} labelled ids of {path} has a vector",
            expected=f"ids of type {vectors.ids.type}, such as {vectors.example()}",
            got=f"ids such as {', '.join(map(repr, ids[:3].to_pylist()))}",
        )
    if len(classes) < 2:
        raise InputError(f"{path} has {len(classes)} class", expected="at least two")
    # Each id once, in the order of the table, which may have one row per class of an id.
    unique, first, line = np.unique(found[known], return_index=True, return_inverse=True)
    order = np.argsort(first)
    row = np.full(len(ids), -1)
    row[known] = np.argsort(order)[line]
    for share in shares:
        if not 0 < round(share * len(unique)) < len(unique):
            raise UsageError(
                f"a share of {share:g} of {len(unique):,} labelled ids leaves "
                "nothing to train on, or nothing to predict",
                remedy="Label more ids, or give other --shares",
            )
    kept = known[of]
    numbers = as_numpy(pc.index_in(flat, value_set=classes))[kept]
    unknown = int((labelled & (found < 0)).sum())
    return Labels(str(path), unique[order], row[of[kept]], numbers, classes.to_pylist(), unknown)


def _columns(path: Path) -> tuple[pa.Array, pa.Array]:
    if (path / "graph.json").exists():
        from penstock.pipelines.vectors.store import as_ids

        graph = Graph.open(path)
        if graph.manifest.labels is None or graph.manifest.labels == "value":
            raise UsageError(f"{path} has no classes", got=f"labels {graph.manifest.labels}")
        return as_ids(graph.user_ids()), as_ids(graph.node_column("label"))
    columns = read_columns(str(path), ("id", "label"), first=True)
    if len(columns) < 2:
        raise InputError(f"{path} has no labels", expected="columns id and label")
    return columns["id"], columns["label"]


def _pairs(labels: pa.Array, path: Path) -> tuple[Array, pa.Array]:
    """Return the row and the class of every label; a row has one label or a list."""
    import pyarrow as pa
    import pyarrow.compute as pc

    labels = _whole_numbers(labels)
    kind = labels.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        flat = pc.list_flatten(labels)
        of = as_numpy(pc.list_parent_indices(labels))
    else:
        flat, of = labels, np.arange(len(labels))
    if pa.types.is_nested(flat.type) or pa.types.is_floating(kind):
        raise InputError(
            f"{path} has no classes", expected="integers, text, or lists of them", got=str(kind)
        )
    there = ~as_numpy(flat.is_null())
    if pa.types.is_integer(flat.type):
        there &= as_numpy(flat, 0) >= 0  # -1: no class
    kept = np.flatnonzero(there)
    return np.asarray(of)[kept], flat.take(pa.array(kept))


def _whole_numbers(labels: pa.Array) -> pa.Array:
    """Return text or floats as integers if all are whole, and an empty text as null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(labels.type):
        whole = pc.all(pc.equal(pc.floor(labels), labels)).as_py() is not False
        return labels.cast(pa.int64()) if whole else labels
    if not (pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type)):
        return labels
    labels = pc.if_else(pc.equal(labels, ""), pa.scalar(None, labels.type), labels)
    if pc.all(pc.match_substring_regex(labels, r"^-?\d{1,18}(\.0+)?$")).as_py() is False:
        return labels
    return pc.replace_substring_regex(labels, r"\.0+$", "").cast(pa.int64())


def _shuffled(count: int, seed: int, number: int) -> Array:
    from penstock.kernels.cpu.philox import random_keys
    from penstock.kernels.streams import Stream

    keys = random_keys(seed, Stream.SPLIT_NODES, number * count, count)
    return np.argsort(keys, kind="stable")


# -- the classifier ------------------------------------------------------------------------------


def fit(features: Array, targets: Array, l2: float, start: Array | None = None) -> Array:
    """Return weights of one logistic regression per class: (dimension + 1, classes) float64.

    The loss of a class is the sum of its log losses and ``l2 / 2`` times its squared weights,
    except the bias (the last row). Classes are independent, but are minimised together: one product
    of matrices is faster than one product of vectors per class.

    Parameters
    ----------
    features, targets
        (rows, dimension) float64, (rows, classes) bool.
    l2
        L2 penalty.
    start
        Weights to begin with.
    """
    from scipy.optimize import minimize

    rows, width = features.shape
    classes = targets.shape[1]
    sign = np.where(targets, 1.0, -1.0)

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(width + 1, classes)
        margins = sign * decide(features, weights)
        small = np.exp(-np.abs(margins))
        total = np.log1p(small).sum() - np.minimum(margins, 0).sum()
        slopes = -sign * np.where(margins > 0, small, 1.0) / (1.0 + small)
        gradient = np.empty_like(weights)
        np.matmul(features.T, slopes, out=gradient[:-1])
        gradient[-1] = slopes.sum(axis=0)
        gradient[:-1] += l2 * weights[:-1]
        total += 0.5 * l2 * np.square(weights[:-1]).sum()
        return float(total) / rows, gradient.reshape(-1) / rows

    begin = np.zeros((width + 1, classes)) if start is None else start
    found = minimize(
        loss,
        begin.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS, "gtol": _GRADIENT, "ftol": 0.0},
    )
    weights: Array = found.x.reshape(width + 1, classes)
    return weights


def decide(features: Array, weights: Array) -> Array:
    """Return the score of every class: (rows, classes) float64."""
    scores: Array = features @ weights[:-1] + weights[-1]
    return scores


def predict_top(scores: Array, counts: Array) -> Array:
    """Return a mask of the ``counts`` classes of each row with the highest scores."""
    places = np.empty(scores.shape, np.int64)
    order = np.argsort(-scores, axis=1, kind="stable")
    np.put_along_axis(places, order, np.arange(scores.shape[1])[None, :], axis=1)
    chosen: Array = places < counts[:, None]
    return chosen


def f1_scores(targets: Array, predicted: Array) -> tuple[float, float]:
    """Return micro and macro F1; a class without labels and predictions has 0."""
    right = (targets & predicted).sum(axis=0)
    both = targets.sum(axis=0) + predicted.sum(axis=0)
    by_class = 2 * right / np.maximum(both, 1)
    return float(2 * right.sum() / max(both.sum(), 1)), float(by_class.mean())
