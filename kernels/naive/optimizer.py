"""One step of an optimizer over all parameters, one vector, in place."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.gnn_rules import Descent


def sgd(parameters: Array, gradient: Array, velocity: Array, how: Descent) -> None:
    """Step against the gradient; ``velocity`` starts at 0."""
    step = gradient * how.scale + how.weight_decay * parameters
    velocity[:] = how.momentum * velocity + step
    parameters -= how.lr * velocity


def adam(parameters: Array, gradient: Array, mean: Array, square: Array, how: Descent) -> None:
    """Adam, or AdamW if ``decoupled``; ``mean`` and ``square`` start at 0."""
    slope = gradient * how.scale
    if how.decoupled:
        parameters *= 1 - how.lr * how.weight_decay
    else:
        slope = slope + how.weight_decay * parameters
    mean[:] = how.beta1 * mean + (1 - how.beta1) * slope
    square[:] = how.beta2 * square + (1 - how.beta2) * slope**2
    deviation = np.sqrt(square / (1 - how.beta2**how.step)) + how.epsilon
    parameters -= how.lr / (1 - how.beta1**how.step) * mean / deviation
