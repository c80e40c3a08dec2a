"""One step of an optimizer on the GPU; names and meaning are naive/optimizer.py's.

All numbers of a step are arguments of one launch, so a CUDA graph needs them set again each epoch.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import flat, vector
from penstock.kernels.cuda.module import c_name, launch
from penstock.kernels.gnn_rules import Descent

_FILE = "optimizer"


def sgd(
    parameters: DeviceArray, gradient: DeviceArray, velocity: DeviceArray, how: Descent
) -> None:
    """Step against the gradient; ``velocity`` starts at 0."""
    kind = parameters.dtype.type
    launch(
        _FILE,
        f"sgd<{c_name(parameters)}>",
        len(parameters),
        *(flat(parameters, kind), vector(gradient, parameters), flat(velocity, kind)),
        np.int64(len(parameters)),
        *(kind(number) for number in (how.lr, how.momentum, how.weight_decay, how.scale)),
    )


def adam(
    parameters: DeviceArray,
    gradient: DeviceArray,
    mean: DeviceArray,
    square: DeviceArray,
    how: Descent,
) -> None:
    """Adam, or AdamW if ``decoupled``; ``mean`` and ``square`` start at 0."""
    kind = parameters.dtype.type
    lr, scale, step, weight_decay, _, beta1, beta2, epsilon, decoupled = how
    numbers = (
        *(1 - lr * weight_decay if decoupled else 1, 0 if decoupled else weight_decay),
        *(beta1, 1 - beta1, beta2, 1 - beta2, 1 - beta2**step, lr / (1 - beta1**step)),
        *(epsilon, scale),
    )
    launch(
        _FILE,
        f"adam<{c_name(parameters)}>",
        len(parameters),
        *(flat(parameters, kind), vector(gradient, parameters)),
        *(flat(mean, kind), flat(square, kind), np.int64(len(parameters))),
        *(kind(number) for number in numbers),
    )
