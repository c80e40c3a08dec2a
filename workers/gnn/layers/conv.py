"""A convolution: the lowered form of one layer of a model, forward and backward.

It takes x, one row per column of the rank's block (owned nodes, then ghosts, whose rows it fetches
if needed), and returns the rows of owned nodes. ``forward`` saves the activations for ``backward``;
``backward`` takes the gradient of the output, may overwrite it, computes the parameters' gradients,
starts their allreduce, and returns the gradient of x.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Activation, Epilogue
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.inputs import Dense
from penstock.workers.gnn.layers.norms import make_norm
from penstock.workers.gnn.layers.parameters import ParameterSpec, constant, glorot
from penstock.workers.gnn.plan.lowering import LayerPlan


class Conv:
    """Bias, norm, activation, dropout and residual; kinds add ``convolve`` and its backward."""

    def __init__(self, plan: LayerPlan) -> None:
        assert plan.layer.channels is not None
        self.plan, self.layer, self.inputs = plan, plan.layer, plan.inputs
        self.width, self.first = plan.layer.channels, plan.number == 0
        self.prefix = f"layers.{plan.number}"
        self.activation = Activation[plan.layer.acts.upper()]

    def entries(self) -> list[ParameterSpec]:
        """Return the parameters, weights of products first."""
        found = self.weights()
        if self.layer.bias:
            found.append(constant(f"{self.prefix}.bias", self.width))
        if self.layer.norm != "none":
            found.append(constant(f"{self.prefix}.scale", self.width, 1.0))
            found.append(constant(f"{self.prefix}.shift", self.width))
        if self.layer.residual and self.inputs != self.width:
            found.append(glorot(f"{self.prefix}.residual", self.inputs, self.width))
        return found

    def weights(self) -> list[ParameterSpec]:
        """Return the parameters of the kind."""
        raise NotImplementedError

    def prepare(self, context: Context) -> None:
        """Compute what is the same in all epochs."""
        self.context = context
        self.norm = make_norm(self.layer.norm, self.prefix, self.width, context)

    def span(self, what: str) -> AbstractContextManager[None]:
        """Return a context whose time counts for this conv."""
        return self.context.clock.span(f"{self.prefix} {what}", "compute")

    def parameter(self, name: str) -> AnyArray:
        """Return a parameter of this conv."""
        return self.context.parameters[f"{self.prefix}.{name}"]

    def gradient(self, name: str) -> AnyArray:
        """Return where the gradient of a parameter is written."""
        return self.context.parameters.gradient(f"{self.prefix}.{name}")

    # Forward

    def forward(self, x: Dense) -> AnyArray:
        """Return the owned nodes' values, followed by rows for ghosts that are not yet filled."""
        context = self.context
        out = context.buffers.take(f"{self.prefix}.out", context.local.columns, self.width)
        owned = out[: context.local.owned]
        self._skip = self._skipped(x)
        bias = self.parameter("bias") if self.layer.bias else None
        drop = context.drop(self.layer.dropout, self.plan.number)
        self.epilogue = Epilogue(None, self._skip, self.activation, drop)
        if self.norm is None:
            self.convolve(x, owned, replace(self.epilogue, bias=bias))
            return out
        z = context.buffers.take(f"{self.prefix}.z", context.local.owned, self.width)
        self.convolve(x, z, Epilogue(bias) if bias is not None else None)
        self.norm.forward(z, owned)
        self.apply_epilogue(owned, self.epilogue)
        return out

    def convolve(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        """Write the kind's values of owned nodes to ``out``, epilogue included."""
        raise NotImplementedError

    def apply_epilogue(
        self,
        z: AnyArray,
        epilogue: Epilogue,
        first: int = 0,
        last: int | None = None,
        out: AnyArray | None = None,
    ) -> None:
        """Apply an epilogue to rows, in place without ``out``."""
        module, last = kernel("activation", z), len(z) if last is None else last
        out = z if out is None else out
        with self.span("epilogue"):
            self.context.rows(
                first, last, z.shape[1], lambda a, b: module.apply_epilogue(z, out, epilogue, a, b)
            )

    def _skipped(self, x: Dense) -> AnyArray | None:
        if not self.layer.residual:
            return None
        if self.inputs == self.width:
            return x.dense()[: self.context.local.owned]
        skip = self.context.buffers.take(
            f"{self.prefix}.skip", self.context.local.owned, self.width
        )
        x.product(self.parameter("residual"), skip)
        return skip

    # Backward

    def backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x's owned rows, or None in the first conv."""
        context = self.context
        out = context.buffers.take(f"{self.prefix}.out", context.local.columns, self.width)
        module = kernel("activation", grad)

        def epilogue_backward(first: int, last: int) -> None:
            module.epilogue_backward(grad, out, self.epilogue, first, last)

        with self.span("epilogue backward"):
            if self.layer.bias and self.norm is None:
                self.bias_backward(grad, epilogue_backward)
            else:
                context.rows(0, context.local.owned, self.width, epilogue_backward)
        kept = None
        if self.layer.residual:
            if self.inputs != self.width:
                x.product_backward(grad, self.gradient("residual"))
            if not self.first:
                kept = context.buffers.take(f"residual.{self.width}", *grad.shape)
                kept[...] = grad
        if self.norm is not None:
            z = context.buffers.take(f"{self.prefix}.z", context.local.owned, self.width)
            self.norm.backward(grad, z)
            if self.layer.bias:
                self.bias_backward(grad)
        dx = self.convolve_backward(grad, x)
        if dx is None or kept is None:
            return dx
        if self.inputs != self.width:
            more = context.buffers.scratch(len(grad), self.inputs, dx)
            context.pool.product(kept, self.parameter("residual").T, more)
            kept = more
        return context.add(dx, kept, dx)

    def bias_backward(
        self, grad: AnyArray, before: Callable[[int, int], None] | None = None
    ) -> None:
        """Write the gradient of the bias, of rows that ``before(first, last)`` makes."""
        self.context.column_sums(grad, self.gradient("bias"), before)

    def product_backward(
        self, grad: AnyArray, weight: AnyArray, used: AnyArray | None = None
    ) -> AnyArray:
        """Return ``grad @ weight.T``, in memory that is neither grad's nor ``used``'s."""
        dx = self.context.buffers.scratch(len(grad), len(weight), grad, used)
        with self.span("product backward"):
            self.context.pool.product(grad, weight.T, dx)
        return dx

    def convolve_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x's owned rows from the gradient of ``convolve``'s values."""
        raise NotImplementedError

    def start_allreduce(self) -> None:
        """Start the allreduce of this layer's gradients."""
        names = [entry.name for entry in self.entries()]
        self.context.reducer.start(self.context.parameters.gradients_of(names))
