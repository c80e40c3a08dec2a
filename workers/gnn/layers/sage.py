"""GraphSAGE: a product of the aggregated neighbours, plus one of the node itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Epilogue
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.gcn import GCNConv
from penstock.workers.gnn.layers.inputs import Dense, Then
from penstock.workers.gnn.layers.parameters import ParameterSpec, by_inputs


class SAGEConv(GCNConv):
    """A x W + x S, of the neighbours' mean or sum."""

    def weights(self) -> list[ParameterSpec]:
        """Return the matrix of the neighbours, and that of the node."""
        return [
            by_inputs(f"{self.prefix}.weight", self.inputs, self.width),
            by_inputs(f"{self.prefix}.self", self.inputs, self.width),
        ]

    def convolve(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        """Write the sum of both products to ``out``, epilogue included."""
        context = self.context
        own = context.buffers.take(f"{self.prefix}.own", context.local.owned, self.width)
        with self.span("product"):
            x.product(self.parameter("self"), own)
        epilogue = epilogue or Epilogue()
        if epilogue.skip is not None:
            context.add(own, epilogue.skip, own)
        super().convolve(x, out, replace(epilogue, skip=own))

    def release_features(self, x: Dense) -> None:
        """Keep the features: the node's own product reads them."""

    def own_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x by the node's own product, or None in the first conv."""
        with self.span("product backward"):
            x.product_backward(grad, self.gradient("self"))
        return None if self.first else self.product_backward(grad, self.parameter("self"))


class SAGEMaxConv(SAGEConv):
    """The same with each feature's maximum over the neighbours."""

    def prepare(self, context: Context) -> None:
        """Keep rows whole: the argmax is over all neighbours."""
        super().prepare(context)
        self.edges_by_owner = self.ghost_columns = None

    def prepare_rows_later(
        self, x: AnyArray, factor: AnyArray | None, out: AnyArray | None = None
    ) -> tuple[AnyArray, Then]:
        """Return the values unchanged: the backward pass compares with them."""
        return x, None

    def aggregate_owned(
        self, x: AnyArray, out: AnyArray, first: int, last: int, epilogue: Epilogue | None
    ) -> None:
        """Write the maxima of rows to ``out``, and save the argmax."""
        module, block = kernel("aggregate", x), self.rows_of
        argmax = self._argmax()
        with self.span("max over neighbours"):
            self.context.edges(
                block,
                first,
                last,
                x.shape[1],
                lambda a, b: module.gather_max(block, x, out, argmax, a, b),
            )

    def rows_backward(
        self, grad: AnyArray, dx: AnyArray, first: int, last: int, skip: AnyArray | None
    ) -> None:
        """Write the gradient of gathered rows, which goes to the argmax."""
        module, columns, argmax = kernel("aggregate", grad), self.columns_of, self._argmax()
        assert columns is not None
        with self.span("max over neighbours backward"):
            self.context.edges(
                columns,
                first,
                last,
                dx.shape[1],
                lambda a, b: module.gather_max_back(columns, grad, argmax, dx, a, b),
            )
        if skip is not None and first < self.context.local.owned:
            np.add(dx[first:last], skip[first:last], out=dx[first:last])

    def _argmax(self) -> AnyArray:
        context = self.context
        ids = context.adjacency.indices.dtype
        return context.buffers.take(f"{self.prefix}.argmax", context.local.owned, self.inputs, ids)
