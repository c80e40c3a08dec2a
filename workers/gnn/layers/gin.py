"""GIN: a sum over neighbours and the node itself, then two products with an activation between."""

from __future__ import annotations

from dataclasses import replace

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Activation, Epilogue
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.gcn import GCNConv
from penstock.workers.gnn.layers.inputs import Dense
from penstock.workers.gnn.layers.parameters import ParameterSpec, constant, glorot
from penstock.workers.gnn.plan.lowering import LayerPlan


class GINConv(GCNConv):
    """relu(A x W + b) V: the first half is an inner ``GCNConv`` with its own width."""

    def __init__(self, plan: LayerPlan) -> None:
        super().__init__(plan)
        self.hidden = self.layer.hidden or self.width
        inner = replace(self.layer, channels=self.hidden, residual=False, norm="none", dropout=0.0)
        self.inner = GCNConv(replace(plan, layer=inner))
        # Its gradient completes this conv's gradients; a residual may skip to these features.
        self.inner.start_allreduce = self.start_allreduce  # type: ignore[method-assign]
        self.inner.release_features = self.release_features  # type: ignore[method-assign]

    def weights(self) -> list[ParameterSpec]:
        """Return both matrices, and the bias between."""
        return [
            *self.inner.weights(),
            constant(f"{self.prefix}.between", self.hidden),
            glorot(f"{self.prefix}.second", self.hidden, self.width),
        ]

    def prepare(self, context: Context) -> None:
        """Prepare the first half, which gathers."""
        super(GCNConv, self).prepare(context)
        self.inner.prepare(context)

    def convolve(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        """Write both halves to ``out``, epilogue included."""
        between = Epilogue(self.parameter("between"), activation=Activation.RELU)
        self.inner.convolve(x, self._hidden(), between)
        with self.span("product"):
            self.context.pool.product(self._hidden(), self.parameter("second"), out)
        if epilogue is not None:
            self.apply_epilogue(out, epilogue)

    def convolve_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x, or None."""
        context, hidden = self.context, self._hidden()
        with self.span("product backward"):
            context.pool.product_of_columns(hidden, grad, self.gradient("second"))
        dhidden = self.product_backward(grad, self.parameter("second"))
        module, epilogue = kernel("activation", grad), Epilogue(activation=Activation.RELU)
        context.rows(
            0,
            len(hidden),
            self.hidden,
            lambda a, b: module.epilogue_backward(dhidden, hidden, epilogue, a, b),
        )
        context.column_sums(dhidden, self.gradient("between"))
        return self.inner.convolve_backward(dhidden, x)

    def _hidden(self) -> AnyArray:
        context = self.context
        return context.buffers.take(f"{self.prefix}.hidden", context.local.owned, self.hidden)
