"""Losses of a tile of scores, and their slopes, which replace the scores, in Numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.exp import exp_in_place, exponential, total_of
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.embed_rules import Loss

_SOFTMAX, _CONTRASTIVE, _LOGISTIC, _MARGIN, _SELF_ADVERSARIAL = (int(loss) for loss in Loss)
_INFINITY = np.float32(np.inf)
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
# 1 / (2 n + 1), of the series of atanh.
_S11, _S9, _S7 = np.float32(1 / 11), np.float32(1 / 9), np.float32(1 / 7)
_S5, _S3 = np.float32(1 / 5), np.float32(1 / 3)


def tile_loss(
    loss: int,
    scores: Array,
    positives: Array,
    first: int,
    margin: Any,
    temperature: Any,
    losses: Array,
    slopes: Array,
    weights: Array | None,
) -> None:
    """Write each row's loss and its slope in the positive; replace the scores by their slopes.

    scores     (rows, N) float32; -infinity for negatives that are left out
    positives  float32, row r's at ``first + r``, as in ``losses``, float64, and ``slopes``,
               float32, and ``weights``, which multiply all three
    """
    softmax = loss in (_SOFTMAX, _CONTRASTIVE)
    _tile_loss(
        scores,
        positives,
        first,
        margin,
        temperature,
        losses,
        slopes,
        weights,
        np.empty(scores.shape[1], np.float32),
        loss == _SOFTMAX,
        softmax or None,
        loss == _LOGISTIC or None,
        loss == _MARGIN or None,
    )


# Compiled for one loss: Numba omits branches for None (_self_adversarial: if all three are).
@njit(cache=True, nogil=True, error_model="numpy")
def _tile_loss(
    scores: Array,
    positives: Array,
    first: int,
    margin: Any,
    temperature: Any,
    losses: Array,
    slopes: Array,
    weights: Any,
    scratch: Array,
    with_positive: bool,
    softmax: Any,
    logistic: Any,
    hinge: Any,
) -> None:
    rows, width = scores.shape
    for row in range(rows):
        at = moved(pointer(scores), row * width)
        p = positives[first + row]
        if softmax is not None:
            found, slope = _softmax(at, p, width, with_positive)
        elif logistic is not None:
            found, slope = _logistic(at, p, width)
        elif hinge is not None:
            found, slope = _margin(at, p - margin, width)
        else:
            found, slope = _self_adversarial(at, p, margin, temperature, width, pointer(scratch))
        if weights is not None:
            weight = weights[first + row]
            found, slope = found * np.float64(weight), slope * weight
            for f in range(width):
                at[f] *= weight
        losses[first + row] += found
        slopes[first + row] = slope


@njit(cache=True, error_model="numpy")
def _softmax(n: Any, p: Any, width: Any, with_positive: bool) -> Any:
    # NaN may not be the largest, but its power makes the total NaN.
    largest = _largest(n, width)
    if with_positive:
        largest = max(largest, p)
    elif largest == -_INFINITY and total_of(n, width) == -_INFINITY:  # and none is NaN
        for f in range(width):
            n[f] = _ZERO
        return 0.0, _ZERO
    exp_in_place(n, largest, width)
    total = total_of(n, width)
    own = exponential(p - largest)
    if with_positive:
        total += own
    share = _ONE / total
    for f in range(width):
        n[f] *= share
    found = math.log(np.float64(total)) - np.float64(p - largest)
    return found, own * share - _ONE if with_positive else -_ONE


@njit(cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(n: Any, width: Any) -> Any:
    largest = -_INFINITY
    for f in range(width):
        largest = n[f] if n[f] > largest else largest
    return largest


@njit(cache=True, error_model="numpy")
def _log1p(x: Any) -> Any:
    """Return log(1 + x) for x from 0 to 1, as 2 atanh(x / (2 + x))."""
    s = x / (_TWO + x)
    square = s * s
    power = _S11 * square + _S9
    power = power * square + _S7
    power = power * square + _S5
    power = power * square + _S3
    power = power * square + _ONE
    return _TWO * s * power


@njit(cache=True, error_model="numpy")
def _softplus_and_sigmoid(x: Any) -> Any:
    power = exponential(-abs(x))
    above = _ZERO if x < _ZERO else x  # keeps NaN
    return above + _log1p(power), (power if x < _ZERO else _ONE) / (_ONE + power)


@njit(cache=True, fastmath={"reassoc"}, error_model="numpy")
def _logistic(n: Any, p: Any, width: Any) -> Any:
    share = _ONE / np.float32(width)
    total = _ZERO
    for f in range(width):
        found, slope = _softplus_and_sigmoid(n[f])
        total += found
        n[f] = slope * share
    found, slope = _softplus_and_sigmoid(-p)
    return np.float64(found) + np.float64(total) / width, -slope


@njit(cache=True, fastmath={"reassoc"}, error_model="numpy")
def _margin(n: Any, least: Any, width: Any) -> Any:
    share = _ONE / np.float32(width)
    total, met = _ZERO, _ZERO
    for f in range(width):
        missing = n[f] - least
        total += _ZERO if missing < _ZERO else missing
        n[f] = share if missing > _ZERO else _ZERO
        met += n[f]
    return np.float64(total) / width, -met


@njit(cache=True, error_model="numpy")
def _self_adversarial(
    n: Any, p: Any, margin: Any, temperature: Any, width: Any, weight: Any
) -> Any:
    for f in range(width):
        left_out = n[f] == -_INFINITY
        weight[f] = n[f] if left_out else temperature * n[f]
    largest = _largest(weight, width)
    if largest == -_INFINITY:
        largest = _ZERO
    exp_in_place(weight, largest, width)
    total = total_of(weight, width)
    share = _ONE / total if total != _ZERO else _ZERO
    negative = _weighted(n, margin, weight, share, width)
    found, slope = _softplus_and_sigmoid(-p - margin)
    return np.float64(found) + np.float64(negative), -slope


@njit(cache=True, fastmath={"reassoc"}, error_model="numpy")
def _weighted(n: Any, margin: Any, weight: Any, share: Any, width: Any) -> Any:
    total = _ZERO
    for f in range(width):
        found, slope = _softplus_and_sigmoid(n[f] + margin)
        part = weight[f] * share
        total += part * found
        n[f] = part * slope
    return total
