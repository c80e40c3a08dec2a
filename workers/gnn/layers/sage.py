"""GraphSAGE: one product of what the neighbours give, another of the node itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Finish
from penstock.workers.gnn.layers.context import Surroundings
from penstock.workers.gnn.layers.gcn import Gathered
from penstock.workers.gnn.layers.inputs import Input, Then
from penstock.workers.gnn.layers.parameters import Entry, glorot


class Sage(Gathered):
    """A x W + x S, of the neighbours' mean or sum."""

    def weights(self) -> list[Entry]:
        """Return the matrix of the neighbours, and that of the node."""
        return [
            glorot(f"{self.prefix}.weight", self.inputs, self.width),
            glorot(f"{self.prefix}.self", self.inputs, self.width),
        ]

    def mix(self, x: Input, out: Any, how: Finish | None) -> None:
        """Write both products' sum at ``out``, finished."""
        around = self.around
        own = around.buffers.take(f"{self.prefix}.own", around.local.owned, self.width)
        with self.span("product"):
            x.product(around.parameters[f"{self.prefix}.self"], own)
        how = how or Finish()
        if how.skip is not None:
            around.add(own, how.skip, own)
        super().mix(x, out, replace(how, skip=own))

    def let_go(self, x: Input) -> None:
        """Keep the features: the node's own product reads them."""

    def mix_back(self, grad: Any, x: Input) -> Any:
        """Return the gradient of x, or None."""
        around, owned = self.around, self.around.local.owned
        with self.span("product back"):
            x.product_back(grad, around.parameters.gradient(f"{self.prefix}.self"))
        own = None
        if not self.first:
            own = self.product_back(grad, around.parameters[f"{self.prefix}.self"])
        if self.order == "transform":
            mixed = self.sum_back(grad, self.width, used=own)[:owned]
            with self.span("product back"):
                x.product_back(mixed, self.slope)
            self.add_up()
            if own is None:
                return None
            dx = self.product_back(mixed, self.weight, own)
            return around.add(dx, own, dx)
        with self.span("product back"):
            around.crew.product_of_columns(self._mixed, grad, self.slope)
        self.add_up()
        if own is None:
            return None
        dmixed = self.product_back(grad, self.weight, own)
        return self.sum_back(dmixed, self.inputs, Finish(skip=own))[:owned]


class SageMax(Sage):
    """The same, of each feature's largest value among the neighbours."""

    def prepare(self, around: Surroundings) -> None:
        """Leave rows whole: a largest value is not put together of two."""
        super().prepare(around)
        self.near_and_far = None

    def readied(self, x: Any, factor: Any, out: Any = None) -> tuple[Any, Then]:
        """Return the values as they are: the largest is to be found again on the way back."""
        return x, None

    def sum_rows(self, x: Any, out: Any, first: int, last: int, how: Finish | None) -> None:
        """Write the largest values of rows at ``out``, and remember whose they are."""
        module, block = kernel("aggregate", x), self.rows_of
        whose = self._whose()
        with self.span("largest of neighbours"):
            self.around.edges(
                block, first, last, x.shape[1],
                lambda a, b: module.gather_max(block, x, out, whose, a, b),
            )  # fmt: skip

    def sum_back(self, grad: Any, width: int, how: Finish | None = None, used: Any = None) -> Any:
        """Return the gradient of what was gathered, which goes to whose value it was."""
        around, columns = self.around, self.columns_of
        assert columns is not None
        skip = how.skip if how is not None else None
        dx = around.buffers.scratch(around.local.columns, width, grad, used, skip)
        module, whose, owned = kernel("aggregate", grad), self._whose(), around.local.owned

        def work(first: int, last: int) -> None:
            with self.span("largest of neighbours back"):
                around.edges(
                    columns, first, last, width,
                    lambda a, b: module.gather_max_back(columns, grad, whose, dx, a, b),
                )  # fmt: skip
            if skip is not None and first < owned:
                np.add(dx[first:last], skip[first:last], out=dx[first:last])

        around.gather_back(dx, work)
        return dx

    def _whose(self) -> Any:
        around = self.around
        ids = around.plain.indices.dtype
        return around.buffers.take(f"{self.prefix}.whose", around.local.owned, self.inputs, ids)
