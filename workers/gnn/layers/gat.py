"""GAT: neighbours weighted by attention, in several heads; no array has one value per edge."""

from __future__ import annotations

import numpy as np

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Epilogue, Heads
from penstock.kernels.streams import Stream
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.conv import Conv
from penstock.workers.gnn.layers.inputs import Dense
from penstock.workers.gnn.layers.parameters import ParameterSpec, glorot


class GATConv(Conv):
    """z = x W; every head's sum of neighbours' z, weighted by the softmax of their scores."""

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.layer.heads

    @property
    def each(self) -> int:
        """The number of values per head."""
        return self.width // self.heads if self.layer.concat else self.width

    def weights(self) -> list[ParameterSpec]:
        """Return the matrix, and each head's two vectors."""
        return [
            glorot(f"{self.prefix}.weight", self.inputs, self.heads * self.each),
            glorot(f"{self.prefix}.left", self.heads, self.each),
            glorot(f"{self.prefix}.right", self.heads, self.each),
        ]

    def prepare(self, context: Context) -> None:
        """Make the rows, and the rows that read each column."""
        super().prepare(context)
        self.rows_of = context.adjacency
        self.columns_of = context.transpose(context.adjacency)

    def convolve(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        """Write the heads, side by side or their mean, to ``out``, epilogue included."""
        context, owned = self.context, self.context.local.owned
        z, heads, sums = self._z(), self._heads(), self._sums()
        with self.span("product"):
            x.product(self.parameter("weight"), z[:owned])
        module = kernel("attention", z)
        context.halo.start(z)
        self._score(z, heads, 0, owned)
        for first, last in ((0, context.local.interior), (context.local.interior, owned)):
            if last == owned:
                context.halo.wait()
                self._score(z, heads, owned, context.local.columns)
            with self.span("attention"):
                context.edges(
                    self.rows_of,
                    first,
                    last,
                    z.shape[1],
                    lambda a, b: module.attend(self.rows_of, z, heads, sums, a, b),
                )
        apart = sums.reshape(owned, self.heads, self.each)

        def combine(first: int, last: int) -> None:
            if self.layer.concat:
                out[first:last] = sums[first:last]
            else:
                np.mean(apart[first:last], axis=1, out=out[first:last])

        context.rows(0, owned, sums.shape[1], combine)
        if epilogue is not None:
            self.apply_epilogue(out, epilogue)

    def _score(self, z: AnyArray, heads: Heads, first: int, last: int) -> None:
        module = kernel("attention", z)
        if last > first:
            with self.span("scores"):
                for name, scores in (("left", heads.left), ("right", heads.right)):
                    module.scores(z[first:last], self.parameter(name), scores[first:last])

    def convolve_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x, or None."""
        context, local = self.context, self.context.local
        owned, columns, total = local.owned, local.columns, self.heads * self.each
        z, heads, sums = self._z(), self._last, self._sums()
        used: list[AnyArray] = [grad]
        if not self.layer.concat:
            spread = context.buffers.scratch(owned, total, grad)
            shaped = spread.reshape(owned, self.heads, self.each)
            shaped[...] = grad[:, None, :] / self.heads
            grad = spread
            used.append(grad)
        dot, dleft, dright = (
            context.buffers.take(f"attention.{name}.{self.heads}", columns, self.heads)
            for name in ("dot", "dleft", "dright")
        )
        module = kernel("attention", z)
        with self.span("attention backward, rows"):
            context.edges(
                self.rows_of,
                0,
                owned,
                total,
                lambda a, b: module.attend_back_rows(
                    self.rows_of, z, heads, sums, grad, dot, dleft, a, b
                ),
            )
        dz = context.buffers.scratch(columns, total, *used)
        grads = {name: self.gradient(name) for name in ("left", "right")}
        for one in grads.values():
            one[...] = 0

        def work(first: int, last: int) -> None:
            with self.span("attention backward, columns"):
                context.edges(
                    self.columns_of,
                    first,
                    last,
                    total,
                    lambda a, b: module.attend_back_columns(
                        self.columns_of, z, heads, grad, dot, dz, dright, a, b
                    ),
                )
            rows = slice(first, last)
            with self.span("scores backward"):
                module.scores_back(
                    dright[rows], z[rows], self.parameter("right"), dz[rows], grads["right"]
                )
                if first < owned:
                    module.scores_back(
                        dleft[rows], z[rows], self.parameter("left"), dz[rows], grads["left"]
                    )

        context.gather_backward(dz, work)
        with self.span("product backward"):
            x.product_backward(dz[:owned], self.gradient("weight"))
        self.start_allreduce()
        if self.first:
            return None
        return self.product_backward(dz[:owned], self.parameter("weight"))

    # Kept between forward and backward

    def _z(self) -> AnyArray:
        return self._kept("heads", self.context.local.columns, self.heads * self.each)

    def _sums(self) -> AnyArray:
        return self._kept("sums", self.context.local.owned, self.heads * self.each)

    def _heads(self) -> Heads:
        left, right, peak, total = (
            self._kept(f"of.{name}", self.context.local.columns, self.heads)
            for name in ("left", "right", "peak", "total")
        )
        share = self.layer.attention_dropout
        drop = self.context.drop(share, self.plan.number, Stream.GNN_ATTENTION)
        self._last = Heads(left, right, peak, total, self.layer.negative_slope, drop)
        return self._last

    def _kept(self, name: str, rows: int, width: int) -> AnyArray:
        return self.context.buffers.take(f"{self.prefix}.{name}", rows, width)
