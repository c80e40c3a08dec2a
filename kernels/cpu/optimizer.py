"""One step of an optimizer in a single pass, in Numba; the meaning is naive/optimizer.py's."""

from __future__ import annotations

import math
from typing import Any

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.gnn_rules import Descent


def sgd(parameters: Array, gradient: Array, velocity: Array, how: Descent) -> None:
    """Step against the gradient; ``velocity`` starts at 0."""
    numbers = map(parameters.dtype.type, (how.lr, how.momentum, how.weight_decay, how.scale))
    _sgd(parameters, gradient, velocity, *numbers)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _sgd(
    parameters: Array, gradient: Array, velocity: Array, lr: Any, kept: Any, decay: Any, scale: Any
) -> None:
    for i in range(len(parameters)):
        step = gradient[i] * scale + decay * parameters[i]
        velocity[i] = kept * velocity[i] + step
        parameters[i] -= lr * velocity[i]


def adam(parameters: Array, gradient: Array, mean: Array, square: Array, how: Descent) -> None:
    """Adam, or AdamW if ``decoupled``; ``mean`` and ``square`` start at 0."""
    lr, scale, step, weight_decay, _, beta1, beta2, epsilon, decoupled = how
    decays = (1 - lr * weight_decay, 0) if decoupled else (1, weight_decay)
    # Separate, since 1 - beta must not be rounded twice.
    betas = beta1, 1 - beta1, beta2, 1 - beta2
    numbers = lr / (1 - beta1**step), 1 / (1 - beta2**step), *betas, epsilon, *decays, scale
    typed = tuple(map(parameters.dtype.type, numbers))
    _adam(parameters, gradient, mean, square, typed)


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _adam(parameters: Array, gradient: Array, mean: Array, square: Array, numbers: Any) -> None:
    lr, grown, beta1, rest1, beta2, rest2, epsilon, shrink, weight_decay, scale = numbers
    for i in range(len(parameters)):
        slope = gradient[i] * scale + weight_decay * parameters[i]
        first = beta1 * mean[i] + rest1 * slope
        second = beta2 * square[i] + rest2 * slope * slope
        mean[i], square[i] = first, second
        deviation = math.sqrt(second * grown) + epsilon
        parameters[i] = shrink * parameters[i] - lr * first / deviation
