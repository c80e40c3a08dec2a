"""The input of a convolution: dense values, or sparse features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Epilogue, ScaledCSR
from penstock.kernels.streams import Stream
from penstock.workers.gnn.layers.context import Context
from penstock.workers.gnn.plan.lowering import TILE

Then = Callable[[int, int], object] | None  # continues with rows of a product


class Dense:
    """The argument of a conv: a matrix with a row per owned node, and possibly per ghost."""

    def __init__(self, context: Context, values: AnyArray | None) -> None:
        self.context, self.values = context, values

    def product(self, weight: AnyArray, out: AnyArray, then: Then = None) -> None:
        """Write owned rows times ``weight`` to ``out``."""
        self.context.pool.product(self._owned(), weight, out, then)

    def product_backward(self, grad: AnyArray, weight_grad: AnyArray) -> None:
        """Write the gradient of the weight to ``weight_grad``, from that of the product."""
        self.context.pool.product_of_columns(self._owned(), grad, weight_grad)

    def dense(self) -> AnyArray:
        """Return the matrix."""
        assert self.values is not None, "released or sparse features are read"
        return self.values

    def with_ghosts(self) -> AnyArray:
        """Return the matrix, copied to add space for ghosts' rows if it has none."""
        local = self.context.local
        values = self.dense()
        if len(values) < local.columns:
            self.values = np.zeros_like(values, shape=(local.columns, values.shape[1]))
            self.values[: local.owned] = values
        return self.dense()

    def tiles(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield some columns at a time, with space for ghosts' rows."""
        yield slice(None), self.with_ghosts()

    def release(self) -> None:
        """Release the matrix."""
        self.values = None

    def _owned(self) -> AnyArray:
        return self.dense()[: self.context.local.owned]


class Features(Dense):
    """Dense input features; every pass of training drops a share of them.

    They are copied to a GPU when all of them are read, not if only their aggregation is kept.
    """

    def __init__(self, context: Context, host: Array | None, share: float) -> None:
        super().__init__(context, None)
        self._host, self._share = host, share
        self._all: AnyArray | None = None

    def renew(self) -> None:
        """Drop other values; called before each pass."""
        if not self._share:
            return
        context, drop = self.context, self.context.drop(self._share, 0, Stream.GNN_FEATURE)
        self.values = None
        if drop is None:
            return
        given, module, epilogue = (
            self.dense(),
            kernel("activation", context.like),
            Epilogue(drop=drop),
        )
        rows, width = context.local.owned, given.shape[1]
        kept = context.buffers.take("features", context.local.columns, width)
        context.rows(
            0, rows, width, lambda a, b: module.apply_epilogue(given, kept, epilogue, a, b)
        )
        self.values = kept

    def dense(self) -> AnyArray:
        """Return the matrix."""
        if self.values is None and self._host is not None:
            if self._all is None:
                self._all = self.context.put(self._host)
            self.values = self._all
        return super().dense()

    def tiles(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield some columns at a time on a GPU, which cannot hold all of them twice."""
        if not self.context.on_gpu or self.values is not None or self._host is None:
            yield from super().tiles()
            return
        local, width = self.context.local, self._host.shape[1]
        for first in range(0, width, TILE):
            columns = slice(first, min(first + TILE, width))
            shape = local.columns, columns.stop - first
            tile = np.empty_like(self.context.like, shape=shape)
            tile[: local.owned] = self.context.put(np.ascontiguousarray(self._host[:, columns]))
            yield columns, tile

    def release(self) -> None:
        """Release the matrix."""
        self.values = self._all = self._host = None


class SparseFeatures(Dense):
    """Sparse input features: products are sums over a block whose columns are features.

    There is no matrix: the plan gives them to convs that only multiply them.
    """

    def __init__(self, context: Context, block: ScaledCSR, share: float) -> None:
        super().__init__(context, None)
        self._share = share
        self._rows = self._all_rows = block
        self._columns = self._all_columns = kernel("aggregate", block.indices).transpose(block)

    def renew(self) -> None:
        """Drop other values; called before each pass."""
        if not self._share:
            return
        self._rows, self._columns = self._all_rows, self._all_columns
        drop = self.context.drop(self._share, 0, Stream.GNN_FEATURE)
        if drop is None:
            return
        module = kernel("activation", self._rows.indices)
        kept = []
        for name, block in (("rows", self._rows), ("columns", self._columns)):
            values = self.context.buffers.take(f"features.{name}", 1, block.edges)[0]
            module.drop_values(block, drop, values, rows_are_columns=name == "columns")
            kept.append(replace(block, weights=values))
        self._rows, self._columns = kept

    def product(self, weight: AnyArray, out: AnyArray, then: Then = None) -> None:
        """Write owned rows times ``weight`` to ``out``."""
        self._gather(self._rows, weight, out, then)

    def product_backward(self, grad: AnyArray, weight_grad: AnyArray) -> None:
        """Write the gradient of the weight to ``weight_grad``."""
        self._gather(self._columns, grad, weight_grad)

    def _gather(self, block: ScaledCSR, x: AnyArray, out: AnyArray, then: Then = None) -> None:
        module = kernel("aggregate", x)

        def work(first: int, last: int) -> None:
            module.gather(block, x, out, first, last)
            if then is not None:
                then(first, last)

        self.context.edges(block, 0, block.rows, x.shape[1], work)
