"""One step of an optimizer in a single pass, in Numba; the meaning is naive/optimizer.py's."""

from __future__ import annotations

import math
from typing import Any

from penstock.arrays import Array
from penstock.kernels.compiled import entry, njit


@entry("parameters", "velocity", fastmath={"contract"})
def sgd(
    parameters: Array,
    gradient: Array,
    velocity: Array,
    lr: float,
    momentum: float,
    weight_decay: float,
    scale: float,
) -> None:
    """Step against the gradient; ``velocity`` starts at 0."""
    kind = parameters.dtype.type
    rate, kept, decay, share = kind(lr), kind(momentum), kind(weight_decay), kind(scale)
    for i in range(len(parameters)):
        step = gradient[i] * share + decay * parameters[i]
        velocity[i] = kept * velocity[i] + step
        parameters[i] -= rate * velocity[i]


def adam(
    parameters: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    scale: float,
    step: int,
) -> None:
    """Adam, or AdamW if ``decoupled``; ``mean`` and ``square`` start at 0, step at 1."""
    kind = parameters.dtype.type
    _adam(
        parameters,
        gradient,
        mean,
        square,
        kind(lr / (1 - beta1**step)),
        kind(1 / (1 - beta2**step)),
        # Separate, since 1 - beta must not be rounded twice.
        kind(beta1),
        kind(1 - beta1),
        kind(beta2),
        kind(1 - beta2),
        kind(epsilon),
        kind(1 - lr * weight_decay if decoupled else 1),
        kind(0 if decoupled else weight_decay),
        kind(scale),
    )


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _adam(
    parameters: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    lr: Any,
    grown: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    epsilon: Any,
    shrink: Any,
    weight_decay: Any,
    scale: Any,
) -> None:
    for i in range(len(parameters)):
        slope = gradient[i] * scale + weight_decay * parameters[i]
        first = beta1 * mean[i] + rest1 * slope
        second = beta2 * square[i] + rest2 * slope * slope
        mean[i], square[i] = first, second
        deviation = math.sqrt(second * grown) + epsilon
        parameters[i] = shrink * parameters[i] - lr * first / deviation
