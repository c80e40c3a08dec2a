"""GCN: an aggregation over neighbours and a product with weights, in the cheaper order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.arrays import AnyArray
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Epilogue, ScaledCSR
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.layers.conv import Conv
from penstock.workers.gnn.layers.inputs import Dense, Then
from penstock.workers.gnn.layers.parameters import ParameterSpec, glorot
from penstock.workers.gnn.layers.structure import block_of, split_by_owner


class GCNConv(Conv):
    """(A x) W or A (x W): products commute with sums over neighbours. The base of SAGE and GIN.

    A x may be precomputed, if it is the same in every epoch.

    Factors of neighbours' rows (``ScaledCSR.right``) would be read for every edge: rows are
    multiplied before they are gathered or sent. Features that are aggregated unscaled are not
    copied for that: it would cost more memory than time.
    """

    _aggregated: AnyArray | None = None

    def weights(self) -> list[ParameterSpec]:
        """Return the one matrix."""
        return [glorot(f"{self.prefix}.weight", self.inputs, self.width)]

    def prepare(self, context: Context) -> None:
        """Make the CSR, and the transposed CSR if the backward pass needs it."""
        super().prepare(context)
        layer = self.layer
        whole = block_of(context, layer.kind, layer.aggregate, layer.eps)
        has_backward = not self.first or self.plan.order == "transform"
        self.rows_of, self.columns_of = whole, context.transpose(whole) if has_backward else None
        # Of gathered rows, forward and backward.
        self.factors: tuple[AnyArray | None, AnyArray | None] = (None, None)
        if self.columns_of is not None:
            self.factors = whole.right, self.columns_of.right
            self.rows_of = replace(whole, right=None)
            self.columns_of = replace(self.columns_of, right=None)
        self.ghost_columns = self._ghosts_of(self.columns_of)
        self.edges_by_owner = split_by_owner(context, self.rows_of)

    # Forward

    def convolve(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        """Write A x W to ``out``, epilogue included."""
        if self.plan.order == "transform":
            self._transform_first(x, out, epilogue)
        else:
            self._aggregate_first(x, out, epilogue)

    def _transform_first(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        context, local = self.context, self.context.local
        aggregated = context.buffers.scratch(local.columns, self.width)
        ready, make = self.prepare_rows_later(aggregated, self.factors[0], aggregated)
        with self.span("product"):
            x.product(self.parameter("weight"), aggregated[: local.owned], make)
        self.aggregate(ready, out, epilogue)

    def _aggregate_first(self, x: Dense, out: AnyArray, epilogue: Epilogue | None) -> None:
        context = self.context
        aggregated = context.buffers.take(
            f"{self.prefix}.aggregated", context.local.owned, self.inputs
        )

        def product(first: int, last: int) -> None:
            def apply_epilogue(a: int, b: int) -> None:
                kernel("activation", out).apply_epilogue(out, out, epilogue, first + a, first + b)

            then = None if epilogue is None else apply_epilogue
            with self.span("product"):
                context.pool.product(
                    aggregated[first:last], self.parameter("weight"), out[first:last], then
                )

        if self.plan.precomputed:
            if self._aggregated is None:
                for columns, values in x.tiles():
                    self.aggregate(values, aggregated[:, columns], None)
                self.release_features(x)
            product(0, len(aggregated))
        else:
            values = x.dense()
            ready = self.prepare_rows(values, self.factors[0])
            self.aggregate(x.with_ghosts() if ready is values else ready, aggregated, None, product)
        self._aggregated = aggregated

    def release_features(self, x: Dense) -> None:
        """Free features whose aggregation was precomputed, if nothing else needs them."""
        if not self.layer.residual:
            x.release()

    def prepare_rows(
        self, x: AnyArray, factor: AnyArray | None, out: AnyArray | None = None
    ) -> AnyArray:
        """Return owned rows ready to gather: x, or multiplied with space for ghosts' rows.

        They are written to ``out``, which may be x, or to memory that is not x's.
        """
        ready, make = self.prepare_rows_later(x, factor, out)
        if make is not None:
            with self.span("multiply rows"):
                self.context.rows(0, self.context.local.owned, x.shape[1], make)
        return ready

    def prepare_rows_later(
        self, x: AnyArray, factor: AnyArray | None, out: AnyArray | None = None
    ) -> tuple[AnyArray, Then]:
        """Return where ``prepare_rows`` would write rows, and a function that does, if any."""
        context, width = self.context, x.shape[1]
        if context.narrows(width):
            narrow = kernel("aggregate.bf16", x).narrow
            out = context.buffers.take(f"narrow.{width}", context.local.columns, width, np.uint16)
            return out, lambda a, b: narrow(x, out, a, b, factor)
        if factor is None:
            return x, None
        scale_rows = kernel("activation", x).scale_rows
        if out is None:
            out = context.buffers.scratch(context.local.columns, width, x)
        return out, lambda a, b: scale_rows(x, factor, out, a, b)

    def aggregate(
        self,
        x: AnyArray,
        out: AnyArray,
        epilogue: Epilogue | None,
        then: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write A x to ``out``, epilogue included, while ghosts' rows of x are fetched.

        ``then(first, last)`` is called for complete rows.
        """
        context, local = self.context, self.context.local
        if self.edges_by_owner is None:
            context.gather(x, lambda a, b: self.aggregate_owned(x, out, a, b, epilogue), then)
            return
        owned_edges, ghost_edges = self.edges_by_owner
        context.halo.start(x)
        self.aggregate_rows(owned_edges, x, out, 0, local.interior, epilogue)
        self.aggregate_rows(owned_edges, x, out, local.interior, local.owned)
        if then is not None and local.interior:
            then(0, local.interior)
        context.halo.wait()
        both = context.buffers.scratch(
            len(out), out.shape[1], x, out, epilogue.skip if epilogue else None
        )
        ghosts = x[local.owned :]
        self.aggregate_rows(
            ghost_edges, ghosts, both, local.interior, local.owned, Epilogue(skip=out)
        )
        self.apply_epilogue(both, epilogue or Epilogue(), local.interior, local.owned, out)
        if then is not None:
            then(local.interior, local.owned)

    def aggregate_owned(
        self, x: AnyArray, out: AnyArray, first: int, last: int, epilogue: Epilogue | None
    ) -> None:
        """Write rows of A x to ``out``."""
        self.aggregate_rows(self.rows_of, x, out, first, last, epilogue)

    def aggregate_rows(
        self,
        block: ScaledCSR,
        x: AnyArray,
        out: AnyArray,
        first: int,
        last: int,
        epilogue: Epilogue | None = None,
    ) -> None:
        """Write rows of a block's sums over x to ``out``."""
        module = kernel("aggregate", x)
        with self.span("aggregation"):
            self.context.edges(
                block,
                first,
                last,
                x.shape[1],
                lambda a, b: module.gather(block, x, out, a, b, epilogue),
            )

    # Backward

    def convolve_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x, or None."""
        context, owned = self.context, self.context.local.owned
        own = self.own_backward(grad, x)
        if self.plan.order == "transform":
            aggregated = self.aggregate_backward(grad, self.width, used=own)[:owned]
            with self.span("product backward"):
                x.product_backward(aggregated, self.gradient("weight"))
            self.start_allreduce()
            if self.first:
                return None
            dx = self.product_backward(aggregated, self.parameter("weight"), own)
            return dx if own is None else context.add(dx, own, dx)
        assert self._aggregated is not None
        with self.span("product backward"):
            context.pool.product_of_columns(self._aggregated, grad, self.gradient("weight"))
        self.start_allreduce()
        if self.first:
            return None
        daggregated = self.product_backward(grad, self.parameter("weight"), own)
        return self.aggregate_backward(daggregated, self.inputs, own)[:owned]

    def own_backward(self, grad: AnyArray, x: Dense) -> AnyArray | None:
        """Return the gradient of x that does not come through the aggregation, if any."""
        return None

    def aggregate_backward(
        self,
        grad: AnyArray,
        width: int,
        skip: AnyArray | None = None,
        used: AnyArray | None = None,
    ) -> AnyArray:
        """Return the gradient of the gathered rows, complete for owned nodes.

        ``skip`` is added before other ranks' rows are; memory is not ``used``'s.
        """
        context, ghosts = self.context, self.ghost_columns
        dx = context.buffers.scratch(context.local.columns, width, grad, used, skip)
        grad = self.prepare_rows(grad, self.factors[1], grad)  # not read after this

        def of_ghosts() -> None:
            assert ghosts is not None
            self.aggregate_rows(ghosts, grad, dx[context.local.owned :], 0, ghosts.rows)

        context.gather_backward(
            dx,
            lambda first, last: self.rows_backward(grad, dx, first, last, skip),
            None if ghosts is None else of_ghosts,
        )
        return dx

    def rows_backward(
        self, grad: AnyArray, dx: AnyArray, first: int, last: int, skip: AnyArray | None
    ) -> None:
        """Write the gradient of gathered rows to ``dx``, plus ``skip``."""
        assert self.columns_of is not None
        epilogue = None if skip is None else Epilogue(skip=skip)
        self.aggregate_rows(self.columns_of, grad, dx, first, last, epilogue)

    def _ghosts_of(self, columns: ScaledCSR | None) -> ScaledCSR | None:
        """Return ghosts' rows of the transpose, which have no diagonal."""
        owned = self.context.local.owned
        if columns is None or self.context.local.columns == owned:
            return None
        left = None if columns.left is None else columns.left[owned:]
        return replace(columns, indptr=columns.indptr[owned:], left=left, diagonal=None)
