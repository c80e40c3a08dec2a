"""The quality of predictions: accuracy, F1, area under the ROC curve, confusions; errors of values.

F1 of a class is the harmonic mean of precision (the share of predictions that are right) and recall
(the share of true ones found); 0 if neither has anything to count. Macro: the mean over the
classes that occur, among labels or predictions. Micro: from the counts of all classes together.

The area under the ROC curve is the chance that a node of the class gets a higher probability than
another node, with ties as one half. Macro: the mean over the classes that have both kinds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array


def class_scores(truth: Array, predicted: Array, probabilities: Array) -> dict[str, Any]:
    """Score one class per node: numbers (nodes,), (nodes,), and probabilities (nodes, classes)."""
    classes = probabilities.shape[1]
    confusion = np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes**2)
    confusion = confusion.reshape(classes, classes)
    right = np.diag(confusion)
    f1 = _f1(right, confusion.sum(axis=0) - right, confusion.sum(axis=1) - right)
    there = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    accuracy = float(right.sum() / max(len(truth), 1))
    if classes == 2:
        areas = [roc_auc(truth == 1, probabilities[:, 1])]
    else:
        areas = [roc_auc(truth == c, probabilities[:, c]) for c in range(classes)]
    return {
        "nodes": len(truth),
        "accuracy": accuracy,
        "macro_f1": _mean(f1[there]),
        "micro_f1": accuracy,  # a wrong prediction is a false positive and a false negative
        "roc_auc": _mean(areas),
        "f1": f1.tolist(),
        "confusion": confusion.tolist(),
    }


def multi_scores(truth: Array, predicted: Array, probabilities: Array) -> dict[str, Any]:
    """Score several classes per node: all (nodes, classes), the first two bool.

    ``confusion`` has for each class: true and false positives, false and true negatives.
    """
    right = (truth & predicted).sum(axis=0)
    false = (~truth & predicted).sum(axis=0)
    missed = (truth & ~predicted).sum(axis=0)
    f1 = _f1(right, false, missed)
    there = (right + false + missed) > 0
    areas = [roc_auc(truth[:, c], probabilities[:, c]) for c in range(truth.shape[1])]
    counts = np.stack([right, false, missed, len(truth) - right - false - missed], axis=1)
    return {
        "nodes": len(truth),
        "accuracy": float((truth == predicted).all(axis=1).sum()) / max(len(truth), 1),
        "macro_f1": _mean(f1[there]),
        "micro_f1": float(_f1(right.sum(), false.sum(), missed.sum())),
        "roc_auc": _mean(areas),
        "f1": f1.tolist(),
        "confusion": counts.tolist(),
    }


def value_scores(truth: Array, predicted: Array) -> dict[str, Any]:
    """Score one value per node: mean squared and absolute error, and the explained share."""
    truth, predicted = truth.astype(np.float64), predicted.astype(np.float64)
    error = predicted - truth
    spread = float(((truth - truth.mean()) ** 2).sum()) if len(truth) else 0.0
    return {
        "nodes": len(truth),
        "mse": float(np.mean(error**2)) if len(truth) else None,
        "mae": float(np.mean(np.abs(error))) if len(truth) else None,
        "r2": 1 - float((error**2).sum()) / spread if spread else None,
    }


def roc_auc(positive: Array, score: Array) -> float | None:
    """Return the area under the ROC curve, or None if only one kind exists."""
    ones = int(np.count_nonzero(positive))
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    # The rank of ties is the mean of their positions: 1, 2, ...
    ranks = np.cumsum(counts) - (counts - 1) / 2
    above = float(ranks[place.ravel()][positive].sum()) - ones * (ones + 1) / 2
    return above / (ones * zeros)


def _f1(right: Any, false: Any, missed: Any) -> Any:
    total = 2 * right + false + missed
    return np.divide(2 * right, total, out=np.zeros(np.shape(total)), where=total > 0)[()]


def _mean(values: Any) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
