"""A cell: what one layer of a model is lowered to, forward and back.

It takes x, a row for each column of the rank's block (owned nodes, then ghosts, whose rows it
fetches if it needs them), and gives the rows of owned nodes. ``forward`` keeps what ``back`` needs;
``back`` takes the gradient of what came out, may write over it, puts the parameters' gradients in
their place, starts to add them up over ranks, and returns the gradient of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Activation, Finish
from penstock.workers.gnn.layers.context import Surroundings
from penstock.workers.gnn.layers.inputs import Input
from penstock.workers.gnn.layers.norms import make_norm
from penstock.workers.gnn.layers.parameters import Entry, constant, glorot
from penstock.workers.gnn.plan.spec import Layer


class Cell:
    """A product with weights and what surrounds it; kinds differ in ``mix`` and ``mix_back``."""

    def __init__(self, layer: Layer, number: int, inputs: int, *, first: bool) -> None:
        assert layer.width is not None
        self.layer, self.number, self.inputs = layer, number, inputs
        self.width, self.first = layer.width, first
        self.prefix = f"layers.{number}"
        self.activation = Activation[layer.acts.upper()]

    def entries(self) -> list[Entry]:
        """Return the parameters, weights of products first."""
        found = self.weights()
        if self.layer.bias:
            found.append(constant(f"{self.prefix}.bias", self.bias_width()))
        if self.layer.norm != "none":
            found.append(constant(f"{self.prefix}.scale", self.width, 1.0))
            found.append(constant(f"{self.prefix}.shift", self.width))
        if self.layer.residual and self.inputs != self.width:
            found.append(glorot(f"{self.prefix}.residual", self.inputs, self.width))
        return found

    def weights(self) -> list[Entry]:
        """Return the parameters of the kind."""
        raise NotImplementedError

    def bias_width(self) -> int:
        """Return how many numbers the bias has."""
        return self.width

    def prepare(self, around: Surroundings) -> None:
        """Take what is kept between epochs."""
        self.around = around
        self.norm = make_norm(self.layer.norm, self.prefix, self.width, around)

    def span(self, what: str) -> Any:
        """Return what books the time of a block of code as this cell's."""
        return self.around.clock.span(f"{self.prefix} {what}", "compute")

    # Forward

    def forward(self, x: Input) -> Any:
        """Return the owned nodes' values; rows of ghosts follow them, still to be filled."""
        around = self.around
        out = around.buffers.take(f"{self.prefix}.out", around.local.columns, self.width)
        owned = out[: around.local.owned]
        self._skip = self._skipped(x)
        bias = around.parameters[f"{self.prefix}.bias"] if self.layer.bias else None
        drop = around.drop(self.layer.dropout, self.number)
        self.how = Finish(None, self._skip, self.activation, drop)
        if self.norm is None:
            self.mix(x, owned, replace(self.how, bias=bias))
            return out
        z = around.buffers.take(f"{self.prefix}.z", around.local.owned, self.width)
        self.mix(x, z, Finish(bias) if bias is not None else None)
        self.norm.forward(z, owned)
        self.finish(owned, self.how)
        return out

    def mix(self, x: Input, out: Any, how: Finish | None) -> None:
        """Write the kind's values of owned nodes at ``out``, finished."""
        raise NotImplementedError

    def finish(
        self, z: Any, how: Finish, first: int = 0, last: int | None = None, out: Any = None
    ) -> None:
        """Finish rows, in place where no ``out`` is given."""
        module, last = kernel("activation", z), len(z) if last is None else last
        out = z if out is None else out
        with self.span("finish"):
            self.around.rows(first, last, z.shape[1], lambda a, b: module.finish(z, out, how, a, b))

    def _skipped(self, x: Input) -> Any:
        if not self.layer.residual:
            return None
        if self.inputs == self.width:
            return x.dense()[: self.around.local.owned]
        skip = self.around.buffers.take(f"{self.prefix}.skip", self.around.local.owned, self.width)
        x.product(self.around.parameters[f"{self.prefix}.residual"], skip)
        return skip

    # Back

    def back(self, grad: Any, x: Input) -> Any:
        """Return the gradient of x's owned rows, or None in the first cell."""
        around, parameters = self.around, self.around.parameters
        out = around.buffers.take(f"{self.prefix}.out", around.local.columns, self.width)
        module = kernel("activation", grad)

        def finish_back(first: int, last: int) -> None:
            module.finish_back(grad, out, self.how, first, last)

        with self.span("finish back"):
            if self.layer.bias and self.norm is None:
                self.bias_back(grad, finish_back)
            else:
                around.rows(0, around.local.owned, self.width, finish_back)
        kept = None
        if self.layer.residual:
            if self.inputs != self.width:
                x.product_back(grad, parameters.gradient(f"{self.prefix}.residual"))
            if not self.first:
                kept = around.buffers.take(f"residual.{self.width}", *grad.shape)
                kept[...] = grad
        if self.norm is not None:
            z = around.buffers.take(f"{self.prefix}.z", around.local.owned, self.width)
            self.norm.back(grad, z)
            if self.layer.bias:
                self.bias_back(grad)
        dx = self.mix_back(grad, x)
        if dx is None or kept is None:
            return dx
        if self.inputs != self.width:
            more = around.buffers.scratch(len(grad), self.inputs, dx)
            around.crew.product(kept, parameters[f"{self.prefix}.residual"].T, more)
            kept = more
        return around.add(dx, kept, dx)

    def bias_back(self, grad: Any, before: Callable[[int, int], None] | None = None) -> None:
        """Write the gradient of the bias, of rows that ``before(first, last)`` makes."""
        slope = self.around.parameters.gradient(f"{self.prefix}.bias")
        self.around.column_sums(grad, slope, before)

    def mix_back(self, grad: Any, x: Input) -> Any:
        """Return the gradient of x's owned rows, of the gradient of ``mix``' values."""
        raise NotImplementedError

    def add_up(self) -> None:
        """Start to add the gradients of this cell's parameters up over all ranks."""
        names = [entry.name for entry in self.entries()]
        self.around.sums.start(self.around.parameters.gradients_of(names))
