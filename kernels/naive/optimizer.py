"""One step of an optimizer over all parameters, one vector, in place.

``scale`` multiplies gradients first (clipping).
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def sgd(
    parameters: Array,
    gradient: Array,
    velocity: Array,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    scale: float,
) -> None:
    """Step against the gradient; ``velocity`` starts at 0."""
    step = gradient * scale + weight_decay * parameters
    velocity[:] = momentum * velocity + step
    parameters -= lr * velocity


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
    slope = gradient * scale
    if decoupled:
        parameters *= 1 - lr * weight_decay
    else:
        slope = slope + weight_decay * parameters
    mean[:] = beta1 * mean + (1 - beta1) * slope
    square[:] = beta2 * square + (1 - beta2) * slope**2
    deviation = np.sqrt(square / (1 - beta2**step)) + epsilon
    parameters -= lr / (1 - beta1**step) * mean / deviation
