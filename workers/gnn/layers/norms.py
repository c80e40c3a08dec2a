"""Layer norm and batch norm for convs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import EPSILON, Factors
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.thread_pool import even_cuts

_KEPT = 0.9  # of the running moments in every epoch


class _Norm:
    """A scale and a shift of normalised values."""

    def __init__(self, prefix: str, width: int, context: Context) -> None:
        self.prefix, self.width, self.context = prefix, width, context

    def _rows(self, rows: int, work: Callable[[int, int], object]) -> None:
        self.context.rows(0, rows, self.width, work)

    def _sums(self, rows: int, work: Callable[[int, int, AnyArray], object]) -> AnyArray:
        """Return two sums for each value over rows: ``work(first, last, part)`` adds to its own."""
        context = self.context
        sums = np.zeros_like(context.like, shape=(2, self.width), dtype=np.float64)
        context.pool.sums(even_cuts(0, rows, self.width, whole=context.on_gpu), sums, work)
        return sums

    def _set_gradients(self, sums: AnyArray) -> None:
        for name, column in zip(("shift", "scale"), sums, strict=True):
            self.context.parameters.gradient(f"{self.prefix}.{name}")[...] = column

    def _of(self, name: str) -> AnyArray:
        return self.context.parameters[f"{self.prefix}.{name}"]


class LayerNorm(_Norm):
    """Normalises each node's values by themselves."""

    def forward(self, z: AnyArray, out: AnyArray) -> None:
        """Write the normalised rows of ``z`` to ``out``."""
        module, scale, shift = kernel("norm", z), self._of("scale"), self._of("shift")
        moments = self._moments(len(z))
        self._rows(len(z), lambda a, b: module.layer_norm(z, scale, shift, out, moments, a, b))

    def backward(self, grad: AnyArray, z: AnyArray) -> None:
        """Turn ``grad`` into the gradient of ``z``."""
        module, scale, moments = kernel("norm", z), self._of("scale"), self._moments(len(z))

        def add(first: int, last: int, part: AnyArray) -> None:
            module.layer_norm_back(grad, z, scale, moments, part, first, last)

        self._set_gradients(self._sums(len(z), add))

    def _moments(self, rows: int) -> AnyArray:
        return self.context.buffers.take(f"{self.prefix}.moments", rows, 2)


class BatchNorm(_Norm):
    """Normalises each value over all nodes of the graph; in evaluation by running moments."""

    def __init__(self, prefix: str, width: int, context: Context) -> None:
        super().__init__(prefix, width, context)
        # Mean and variance, for checkpoints.
        self.running = np.zeros_like(context.like, shape=(2, width), dtype=np.float64)
        self.running[1] = 1

    def forward(self, z: AnyArray, out: AnyArray) -> None:
        """Write the normalised rows of ``z`` to ``out``."""
        context, module, nodes = self.context, kernel("norm", z), self.context.local.nodes
        if context.training:
            sums = self._sums(len(z), lambda a, b, part: module.batch_moments(z, part, a, b))
            sums = self._over_ranks(sums)
            mean = sums[0] / nodes
            variance = np.maximum(sums[1] / nodes - mean**2, 0)
            unbiased = variance * (nodes / max(nodes - 1, 1))
            self.running[0] = _KEPT * self.running[0] + (1 - _KEPT) * mean
            self.running[1] = _KEPT * self.running[1] + (1 - _KEPT) * unbiased
        else:
            mean, variance = self.running[0], self.running[1]
        kind = context.like.dtype
        inverse = (1 / np.sqrt(variance + EPSILON)).astype(kind)
        parameters = self._of("scale"), self._of("shift")
        self._factors = factors = Factors(mean.astype(kind), inverse, *parameters)
        self._rows(len(z), lambda a, b: module.batch_norm(z, factors, out, a, b))

    def backward(self, grad: AnyArray, z: AnyArray) -> None:
        """Turn ``grad`` into the gradient of ``z``."""
        context, module, factors = self.context, kernel("norm", z), self._factors

        def add(first: int, last: int, part: AnyArray) -> None:
            module.batch_norm_sums(grad, z, factors, part, first, last)

        own = self._sums(len(z), add)
        self._set_gradients(own)
        means = (self._over_ranks(own) / context.local.nodes).astype(context.like.dtype)
        self._rows(len(z), lambda a, b: module.batch_norm_back(grad, z, factors, means, a, b))

    def _over_ranks(self, sums: AnyArray) -> AnyArray:
        return sums if self.context.alone else self.context.reducer.total(sums.copy())


def make_norm(
    kind: Literal["none", "layer", "batch"], prefix: str, width: int, context: Context
) -> LayerNorm | BatchNorm | None:
    """Return the norm of a layer."""
    if kind == "none":
        return None
    return (LayerNorm if kind == "layer" else BatchNorm)(prefix, width, context)
