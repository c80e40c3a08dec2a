"""Losses, gradients and correct predictions in one pass, in Numba; see naive/loss.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.exp import exp_in_place, exp_row, total_of
from penstock.kernels.cpu.activation.row import read_only, stride
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.gnn_rules import Graded

_FACTORS = 512  # each at most 2: their product stays a float64


def cross_entropy(rows: Graded, labels: Array, first: int, last: int) -> None:
    """Softmax cross-entropy against ``labels``, (rows,) class numbers; below 0 is ignored."""
    _cross_entropy(_ready(rows), read_only(labels, rows.values), first, last)


def binary_cross_entropy(
    rows: Graded, indptr: Array, classes: Array, first: int, last: int
) -> None:
    """Sigmoid cross-entropy of every class; row r has ``classes[indptr[r]:indptr[r + 1]]``."""
    lists = read_only(indptr, rows.values), read_only(classes, rows.values)
    _binary_cross_entropy(_ready(rows), *lists, first, last)


def squared_error(rows: Graded, truth: Array, first: int, last: int) -> None:
    """Squared error of the only column against ``truth``, (rows,); NaN is ignored."""
    _squared_error(_ready(rows), read_only(truth, rows.values), first, last)


def _ready(rows: Graded) -> tuple[Any, ...]:
    values, splits, scale, grad, sums = rows
    given = read_only(values, values), read_only(splits, values), values.dtype.type(scale)
    return *given, values if grad is None else grad, grad is not None, sums


@njit(cache=True, nogil=True, error_model="numpy")
def _cross_entropy(rows: Any, labels: Array, first: int, last: int) -> None:
    logits, splits, scale, grad, wanted, sums = rows
    width = logits.shape[1]
    scratch = np.empty(max(width, 1), logits.dtype)
    zero = scale - scale
    for row in range(first, last):
        power = pointer(scratch)
        split, label = splits[row], labels[row]
        value = moved(pointer(logits), row * stride(logits))
        slope = moved(pointer(grad), row * stride(grad))
        counted = split >= 0 and label >= 0
        if counted:
            largest, best = value[0], 0
            for f in range(1, width):
                if value[f] > largest:
                    largest, best = value[f], f
            # NaN may not be the largest, but its power makes the total NaN.
            exp_row(value, largest, power, width)
            total = total_of(power, width)
            if total != total:  # as in NumPy, the first NaN is the largest
                for f in range(width - 1, -1, -1):
                    best = f if value[f] != value[f] else best
            sums[split, 0] += math.log(np.float64(total)) - np.float64(value[label] - largest)
            sums[split, 1] += 1
            sums[split, 2] += best == label
            sums[split, 3] += 1
            if wanted and split == 0:
                share = scale / total
                for f in range(width):
                    slope[f] = power[f] * share
                slope[label] -= scale
        if wanted and not (counted and split == 0):
            for f in range(width):
                slope[f] = zero


@njit(cache=True, nogil=True, error_model="numpy")
def _binary_cross_entropy(rows: Any, indptr: Array, classes: Array, first: int, last: int) -> None:
    logits, splits, scale, grad, wanted, sums = rows
    width = logits.shape[1]
    powers, truths = np.empty(width, logits.dtype), np.zeros(width, logits.dtype)
    zero = scale - scale
    one = zero + np.int8(1)
    for row in range(first, last):
        power, truth = pointer(powers), pointer(truths)
        split = splits[row]
        value = moved(pointer(logits), row * stride(logits))
        slope = moved(pointer(grad), row * stride(grad))
        if split >= 0:
            for e in range(indptr[row], indptr[row + 1]):
                truth[classes[e]] = one
            for f in range(width):
                power[f] = -abs(value[f])
            exp_in_place(power, zero, width)
            loss, hits, positives = _terms(value, truth, power, width)
            sums[split, 0] += loss
            sums[split, 1] += width
            sums[split, 2] += 2 * hits
            sums[split, 3] += positives
            if wanted and split == 0:
                for f in range(width):
                    likely = (one if value[f] >= zero else power[f]) / (one + power[f])
                    slope[f] = (likely - truth[f]) * scale
            for e in range(indptr[row], indptr[row + 1]):
                truth[classes[e]] = zero
        if wanted and split != 0:
            for f in range(width):
                slope[f] = zero


@njit(cache=True, error_model="numpy")
def _terms(value: Any, truth: Any, power: Any, width: Any) -> Any:
    """Return a row's loss, its number of hits, and its true plus predicted classes."""
    loss, product = 0.0, 1.0
    hits: Any = 0
    positives: Any = 0
    for f in range(width):
        above, true = value[f] > 0, truth[f] > 0
        # max(value, 0) - value * truth; the sum of logarithms is that of a product.
        if above != true:
            loss += abs(np.float64(value[f]))
        product *= 1.0 + power[f]
        if f % _FACTORS == _FACTORS - 1:
            loss += math.log(product)
            product = 1.0
        hits += above and true
        positives += np.int64(above) + np.int64(true)
    return loss + math.log(product), hits, positives


@njit(cache=True, nogil=True, error_model="numpy")
def _squared_error(rows: Any, truth: Array, first: int, last: int) -> None:
    values, splits, scale, grad, wanted, sums = rows
    width = values.shape[1]
    for row in range(first, last):
        split, miss = splits[row], values[row, 0] - truth[row]
        counted = split >= 0 and not math.isnan(truth[row])
        if counted:
            sums[split, 0] += np.float64(miss) ** 2
            sums[split, 1] += 1
            sums[split, 3] += 1
        if wanted:
            for f in range(width):
                grad[row, f] = 0
            if counted and split == 0:
                grad[row, 0] = 2 * miss * scale
