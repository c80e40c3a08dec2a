"""GIN: a sum over neighbours and the node itself, then two products with an activation between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Activation, Finish
from penstock.workers.gnn.layers.context import Surroundings
from penstock.workers.gnn.layers.gcn import Gathered
from penstock.workers.gnn.layers.inputs import Input
from penstock.workers.gnn.layers.parameters import Entry, constant, glorot
from penstock.workers.gnn.plan.spec import Layer


class Gin(Gathered):
    """relu(A x W + b) V: the first half is a ``Gathered`` of its own shape, within this one."""

    def __init__(
        self, layer: Layer, number: int, inputs: int, *, first: bool, order: str, folded: bool
    ) -> None:
        super().__init__(layer, number, inputs, first=first, order=order, folded=folded)
        assert layer.width is not None
        self.hidden = layer.hidden or layer.width
        inner = replace(layer, width=self.hidden, residual=False, norm="none", dropout=0.0)
        self.inner = Gathered(inner, number, inputs, first=first, order=order, folded=folded)
        # When its gradient is there, all of this cell's are; and these features may be skipped to.
        self.inner.add_up = self.add_up  # type: ignore[method-assign]
        self.inner.let_go = self.let_go  # type: ignore[method-assign]

    def weights(self) -> list[Entry]:
        """Return both matrices, and the bias between."""
        return [
            *self.inner.weights(),
            constant(f"{self.prefix}.between", self.hidden),
            glorot(f"{self.prefix}.second", self.hidden, self.width),
        ]

    def prepare(self, around: Surroundings) -> None:
        """Prepare the first half, which gathers."""
        super(Gathered, self).prepare(around)
        self.inner.prepare(around)

    def mix(self, x: Input, out: Any, how: Finish | None) -> None:
        """Write both halves at ``out``, finished."""
        between = Finish(self._parameter("between"), activation=Activation.RELU)
        self.inner.mix(x, self._hidden(), between)
        with self.span("product"):
            self.around.crew.product(self._hidden(), self._parameter("second"), out)
        if how is not None:
            self.finish(out, how)

    def mix_back(self, grad: Any, x: Input) -> Any:
        """Return the gradient of x, or None."""
        around, hidden, parameters = self.around, self._hidden(), self.around.parameters
        with self.span("product back"):
            around.crew.product_of_columns(
                hidden, grad, parameters.gradient(f"{self.prefix}.second")
            )
        dhidden = self.product_back(grad, self._parameter("second"))
        module, how = kernel("activation", grad), Finish(activation=Activation.RELU)
        around.rows(
            0,
            len(hidden),
            self.hidden,
            lambda a, b: module.finish_back(dhidden, hidden, how, a, b),
        )
        around.column_sums(dhidden, parameters.gradient(f"{self.prefix}.between"))
        return self.inner.mix_back(dhidden, x)

    def _parameter(self, name: str) -> Any:
        return self.around.parameters[f"{self.prefix}.{name}"]

    def _hidden(self) -> Any:
        around = self.around
        return around.buffers.take(f"{self.prefix}.hidden", around.local.owned, self.hidden)
