"""Losses, their gradients, and counts of correct predictions, in one pass.

``splits`` is the split of each row: 0 train, 1 valid, 2 test, -1 none; only training rows get a
gradient, other rows of ``grad`` become 0. ``grad`` may be None, or ``values`` itself. ``sums``,
(3, 4) float64, is added to, one row per split:

    0, 1    the sum of losses, and the number of terms
    2, 3    correct predictions, of how many: rows (cross-entropy), or twice the true positives, of
            these plus all false ones, so that their ratio is the micro F1 (several classes)

``scale`` is one over the number of training terms of the whole graph.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import Graded


def cross_entropy(rows: Graded, labels: Array, first: int, last: int) -> None:
    """Softmax cross-entropy against ``labels``, (rows,) class numbers; below 0 is ignored.

    A row is correct if its label's logit is the first of the largest.
    """
    logits, splits, scale, grad, sums = rows
    for row in range(first, last):
        split, label = int(splits[row]), int(labels[row])
        value = logits[row].copy()
        if grad is not None:
            grad[row] = 0
        if split < 0 or label < 0:
            continue
        shifted = value - value.max()
        total = np.exp(shifted).sum()
        sums[split] += [np.log(total) - shifted[label], 1, np.argmax(value) == label, 1]
        if split == 0 and grad is not None:
            grad[row] = np.exp(shifted) / total * scale
            grad[row, label] -= scale


def binary_cross_entropy(
    rows: Graded, indptr: Array, classes: Array, first: int, last: int
) -> None:
    """Sigmoid cross-entropy of every class; row r has ``classes[indptr[r]:indptr[r + 1]]``.

    A class is predicted if its logit is above 0.
    """
    logits, splits, scale, grad, sums = rows
    for row in range(first, last):
        split, value = int(splits[row]), logits[row].copy()
        if grad is not None:
            grad[row] = 0
        if split < 0:
            continue
        truth = np.zeros(len(value), value.dtype)
        truth[classes[int(indptr[row]) : int(indptr[row + 1])]] = 1
        loss = np.maximum(value, 0) - value * truth + np.log1p(np.exp(-np.abs(value)))
        hits = ((value > 0) & (truth > 0)).sum()
        wrong = ((value > 0) != (truth > 0)).sum()
        sums[split] += [loss.sum(dtype=np.float64), len(value), 2 * hits, 2 * hits + wrong]
        if split == 0 and grad is not None:
            grad[row] = (1 / (1 + np.exp(-value)) - truth) * scale


def squared_error(rows: Graded, truth: Array, first: int, last: int) -> None:
    """Squared error of the only column against ``truth``, (rows,); NaN is ignored."""
    values, splits, scale, grad, sums = rows
    for row in range(first, last):
        split, value = int(splits[row]), values[row, 0]
        if grad is not None:
            grad[row] = 0
        if split < 0 or np.isnan(truth[row]):
            continue
        sums[split] += [(value - truth[row]) ** 2, 1, 0, 1]
        if split == 0 and grad is not None:
            grad[row, 0] = 2 * (value - truth[row]) * scale
