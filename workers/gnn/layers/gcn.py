"""GCN: a sum over neighbours and a product with one matrix, in whichever order is cheaper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Block, Finish
from penstock.workers.gnn.layers.cell import Cell
from penstock.workers.gnn.layers.context import Surroundings
from penstock.workers.gnn.layers.inputs import Input, Then
from penstock.workers.gnn.layers.parameters import Entry, glorot
from penstock.workers.gnn.layers.structure import block_of, divided
from penstock.workers.gnn.plan.spec import Layer


class Gathered(Cell):
    """(A x) W or A (x W): products commute with sums over neighbours.

    ``order`` is aggregate or transform. ``folded``: A x is the same in every epoch, and is kept.

    What neighbours' rows are multiplied with (``Block.right``) would be read for every edge: rows
    are multiplied before they are gathered, and travel to other ranks so. Features that are summed
    as they are, are not: a copy of them would cost more memory than time.
    """

    def __init__(
        self, layer: Layer, number: int, inputs: int, *, first: bool, order: str, folded: bool
    ) -> None:
        super().__init__(layer, number, inputs, first=first)
        self.order, self.folded = order, folded
        self._mixed: Any = None
        self._of_ghosts: dict[int, Block] = {}

    def weights(self) -> list[Entry]:
        """Return the one matrix."""
        return [glorot(f"{self.prefix}.weight", self.inputs, self.width)]

    def prepare(self, around: Surroundings) -> None:
        """Make the block, and its transpose if a gradient goes back over it."""
        super().prepare(around)
        layer = self.layer
        whole = block_of(around, layer.kind, layer.aggregate, layer.eps)
        goes_back = not self.first or self.order == "transform"
        # Where the edges would have to be kept turned round only for the way back.
        self.implicit = around.implicit and not around.local.symmetric
        turns = goes_back and not self.implicit
        self.rows_of, self.columns_of = whole, around.transpose(whole) if turns else None
        self.factors: tuple[Any, Any] = None, None  # of what is gathered forward, and back
        if self.columns_of is not None:
            self.factors = whole.right, self.columns_of.right
            self.rows_of = replace(whole, right=None)
            self.columns_of = replace(self.columns_of, right=None)
        self.near_and_far = divided(around, self.rows_of)

    # Forward

    def mix(self, x: Input, out: Any, how: Finish | None) -> None:
        """Write A x W at ``out``, finished."""
        if self.order == "transform":
            self._transform_first(x, out, how)
        else:
            self._aggregate_first(x, out, how)

    def _transform_first(self, x: Input, out: Any, how: Finish | None) -> None:
        around, local = self.around, self.around.local
        mixed = around.buffers.scratch(local.columns, self.width)
        ready, make = self.readied(mixed, self.factors[0], mixed)
        with self.span("product"):
            x.product(self.weight, mixed[: local.owned], make)
        self.sum_all(ready, out, how)

    def _aggregate_first(self, x: Input, out: Any, how: Finish | None) -> None:
        around = self.around
        mixed = around.buffers.take(f"{self.prefix}.mixed", around.local.owned, self.inputs)

        def product(first: int, last: int) -> None:
            def finish(a: int, b: int) -> None:
                kernel("activation", out).finish(out, out, how, first + a, first + b)

            then = None if how is None else finish
            with self.span("product"):
                around.crew.product(mixed[first:last], self.weight, out[first:last], then)

        if self.folded:
            if self._mixed is None:
                for columns, values in x.tiles():
                    self.sum_all(values, mixed[:, columns], None)
                self.let_go(x)
            product(0, len(mixed))
        else:
            values = x.dense()
            ready = self.ready(values, self.factors[0])
            self.sum_all(x.with_ghosts() if ready is values else ready, mixed, None, product)
        self._mixed = mixed

    def let_go(self, x: Input) -> None:
        """Free features that were folded, if nothing else needs them."""
        if not self.layer.residual:
            x.release()

    def ready(self, x: Any, factor: Any, out: Any = None) -> Any:
        """Return owned rows as they are gathered: x, or multiplied with room for ghosts' rows.

        They are written at ``out``, which may be x, or in memory that is not x's.
        """
        ready, make = self.readied(x, factor, out)
        if make is not None:
            with self.span("multiply rows"):
                self.around.rows(0, self.around.local.owned, x.shape[1], make)
        return ready

    def readied(self, x: Any, factor: Any, out: Any = None) -> tuple[Any, Then]:
        """Return where rows will be as ``ready`` says, and what makes them so, if anything must."""
        around, width = self.around, x.shape[1]
        if around.narrows(width):
            narrow = kernel("aggregate.bf16", x).narrow
            out = around.buffers.take(f"narrow.{width}", around.local.columns, width, np.uint16)
            return out, lambda a, b: narrow(x, out, a, b, factor)
        if factor is None:
            return x, None
        scale_rows = kernel("activation", x).scale_rows
        if out is None:
            out = around.buffers.scratch(around.local.columns, width, x)
        return out, lambda a, b: scale_rows(x, factor, out, a, b)

    def sum_all(
        self, x: Any, out: Any, how: Finish | None, then: Callable[[int, int], None] | None = None
    ) -> None:
        """Write A x at ``out``, finished, while ghosts' rows of x are fetched.

        ``then(first, last)`` is called when rows are there.
        """
        around, local = self.around, self.around.local
        if self.near_and_far is None:
            around.gather(x, lambda a, b: self.sum_rows(x, out, a, b, how), then)
            return
        near, far = self.near_and_far
        around.halo.start(x, apart=True)
        self.sum_over(near, x, out, 0, local.interior, how)
        self.sum_over(near, x, out, local.interior, local.owned)
        if then is not None and local.interior:
            then(0, local.interior)
        around.halo.wait()
        both = around.buffers.scratch(len(out), out.shape[1], x, out, how and how.skip)
        ghosts = around.halo.ghosts(x)
        self.sum_over(far, ghosts, both, local.interior, local.owned, Finish(skip=out))
        self.finish(both, how or Finish(), local.interior, local.owned, out)
        if then is not None:
            then(local.interior, local.owned)

    def sum_rows(self, x: Any, out: Any, first: int, last: int, how: Finish | None) -> None:
        """Write rows of A x at ``out``."""
        self.sum_over(self.rows_of, x, out, first, last, how)

    def sum_over(
        self, block: Block, x: Any, out: Any, first: int, last: int, how: Finish | None = None
    ) -> None:
        """Write rows of a block's sums over x at ``out``."""
        module = kernel("aggregate", x)
        with self.span("sum over neighbours"):
            self.around.edges(
                block, first, last, x.shape[1],
                lambda a, b: module.gather(block, x, out, a, b, how),
            )  # fmt: skip

    # Back

    def mix_back(self, grad: Any, x: Input) -> Any:
        """Return the gradient of x, or None."""
        owned = self.around.local.owned
        if self.order == "transform":
            mixed = self.sum_back(grad, self.width)[:owned]
            with self.span("product back"):
                x.product_back(mixed, self.slope)
            self.add_up()
            return None if self.first else self.product_back(mixed, self.weight)
        with self.span("product back"):
            self.around.crew.product_of_columns(self._mixed, grad, self.slope)
        self.add_up()
        if self.first:
            return None
        return self.sum_back(self.product_back(grad, self.weight), self.inputs)[:owned]

    def sum_back(self, grad: Any, width: int, how: Finish | None = None, used: Any = None) -> Any:
        """Return the gradient of what was gathered, complete for owned nodes.

        ``how`` finishes their rows before what other ranks send is added; memory is not ``used``'s.
        """
        around, columns = self.around, self.columns_of
        dx = around.buffers.scratch(around.local.columns, width, grad, used, how and how.skip)
        if self.implicit:
            return self._scattered(grad, dx, how)
        assert columns is not None
        grad = self.ready(grad, self.factors[1], grad)  # which nobody reads after this

        def of_ghosts(rows: slice, out: Any) -> None:
            self.sum_over(self._ghost_rows(columns, rows), grad, out, 0, len(out))

        around.gather_back(
            dx, lambda first, last: self.sum_over(columns, grad, dx, first, last, how), of_ghosts
        )
        return dx

    def _ghost_rows(self, columns: Block, rows: slice) -> Block:
        """Return some ghosts' rows of the transpose; ghosts have no row here to go back to."""
        if rows.start not in self._of_ghosts:
            left = None if columns.left is None else columns.left[rows]
            indptr = columns.indptr[rows.start : rows.stop + 1]
            self._of_ghosts[rows.start] = replace(columns, indptr=indptr, left=left, diagonal=None)
        return self._of_ghosts[rows.start]

    def _scattered(self, grad: Any, dx: Any, how: Finish | None) -> Any:
        """Go back over the rows as they are: all of dx is known only at the end."""
        around = self.around
        dx[...] = 0
        with self.span("sum over neighbours"):
            kernel("aggregate", grad).scatter(self.rows_of, grad, dx)
        around.halo.start_back(dx)
        if how is not None:
            self.finish(dx, how, 0, around.local.owned)
        around.halo.wait_back(dx)
        return dx

    def product_back(self, grad: Any, weight: Any, used: Any = None) -> Any:
        """Return ``grad @ weight.T``, in memory that is neither grad's nor ``used``'s."""
        dx = self.around.buffers.scratch(len(grad), len(weight), grad, used)
        with self.span("product back"):
            self.around.crew.product(grad, weight.T, dx)
        return dx

    @property
    def weight(self) -> Any:
        """The matrix."""
        return self.around.parameters[f"{self.prefix}.weight"]

    @property
    def slope(self) -> Any:
        """The gradient of the matrix."""
        return self.around.parameters.gradient(f"{self.prefix}.weight")
