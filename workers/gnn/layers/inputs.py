"""What a cell multiplies with its weights: dense values, or sparse features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from penstock.errors import PenstockError
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Block, Finish
from penstock.kernels.streams import Stream
from penstock.workers.gnn.layers.context import Surroundings
from penstock.workers.gnn.plan.lowering import TILE

Then = Callable[[int, int], Any] | None  # goes on with rows of a product


class Input(Protocol):
    """What a cell is given."""

    def product(self, weight: Any, out: Any, then: Then = None) -> None:
        """Write owned rows times ``weight`` at ``out``."""

    def product_back(self, grad: Any, slope: Any) -> None:
        """Write the gradient of the weight at ``slope``, of that of the product."""

    def dense(self) -> Any:
        """Return the values as a matrix, a row for each owned node or more."""

    def with_ghosts(self) -> Any:
        """Return the values as a matrix that has room for ghosts' rows."""

    def tiles(self) -> Iterator[tuple[slice, Any]]:
        """Yield the values, some columns after the other, with room for ghosts' rows."""

    def release(self) -> None:
        """Let go of values that are not read any more."""


class Dense:
    """A matrix with a row for each owned node, and perhaps for ghosts."""

    def __init__(self, around: Surroundings, values: Any) -> None:
        self.around, self.values = around, values

    def product(self, weight: Any, out: Any, then: Then = None) -> None:
        """Write owned rows times ``weight`` at ``out``."""
        self.around.crew.product(self._owned(), weight, out, then)

    def product_back(self, grad: Any, slope: Any) -> None:
        """Write the gradient of the weight at ``slope``."""
        self.around.crew.product_of_columns(self._owned(), grad, slope)

    def dense(self) -> Any:
        """Return the matrix."""
        if self.values is None:
            raise PenstockError("features that were folded are read again: this is a bug")
        return self.values

    def with_ghosts(self) -> Any:
        """Return the matrix, copied to where ghosts' rows have room if they have none yet."""
        local = self.around.local
        if len(self.dense()) < local.columns:
            roomy = np.zeros_like(self.values, shape=(local.columns, self.values.shape[1]))
            roomy[: local.owned] = self.values
            self.values = roomy
        return self.values

    def tiles(self) -> Iterator[tuple[slice, Any]]:
        """Yield the matrix as one piece."""
        yield slice(None), self.with_ghosts()

    def release(self) -> None:
        """Let go of the matrix."""
        self.values = None

    def _owned(self) -> Any:
        return self.dense()[: self.around.local.owned]


class Features(Dense):
    """Dense input features, of which a share is dropped in every pass of training.

    They are moved to a GPU when all of them are read, and not where only their sums are kept.
    """

    def __init__(self, around: Surroundings, host: Any, share: float) -> None:
        super().__init__(around, None)
        self._host, self._all, self._share = host, None, share

    def renew(self) -> None:
        """Drop others: called before each pass."""
        if not self._share:
            return
        around, drop = self.around, self.around.drop(self._share, 0, Stream.GNN_FEATURE)
        self.values = None
        if drop is None:
            return
        given, module, how = self.dense(), kernel("activation", around.like), Finish(drop=drop)
        rows, width = around.local.owned, given.shape[1]
        kept = around.buffers.take("features", around.local.columns, width)
        around.rows(0, rows, width, lambda a, b: module.finish(given, kept, how, a, b))
        self.values = kept

    def dense(self) -> Any:
        """Return the matrix."""
        if self.values is None and self._host is not None:
            if self._all is None:
                self._all = self.around.put(self._host)
            self.values = self._all
        return super().dense()

    def tiles(self) -> Iterator[tuple[slice, Any]]:
        """Yield some columns after the other on a GPU, which has no room for all of them twice."""
        if not self.around.on_gpu or self.values is not None:
            yield from super().tiles()
            return
        local, width = self.around.local, self._host.shape[1]
        for first in range(0, width, TILE):
            columns = slice(first, min(first + TILE, width))
            shape = local.columns, columns.stop - first
            tile = np.empty_like(self.around.like, shape=shape)
            tile[: local.owned] = self.around.put(np.ascontiguousarray(self._host[:, columns]))
            yield columns, tile

    def release(self) -> None:
        """Let go of the matrix."""
        self.values = self._all = self._host = None


class SparseFeatures:
    """Sparse input features: products are sums over a block whose columns are features."""

    def __init__(self, around: Surroundings, block: Block, share: float) -> None:
        self.around, self._share = around, share
        self._rows = self._all_rows = block
        self._columns = self._all_columns = kernel("aggregate", block.indices).transpose(block)

    def renew(self) -> None:
        """Drop others: called before each pass."""
        if not self._share:
            return
        self._rows, self._columns = self._all_rows, self._all_columns
        drop = self.around.drop(self._share, 0, Stream.GNN_FEATURE)
        if drop is None:
            return
        module = kernel("activation", self._rows.indices)
        kept = []
        for name, block in (("rows", self._rows), ("columns", self._columns)):
            values = self.around.buffers.take(f"features.{name}", 1, block.edges)[0]
            module.drop_values(block, drop, values, rows_are_columns=name == "columns")
            kept.append(replace(block, weights=values))
        self._rows, self._columns = kept

    def product(self, weight: Any, out: Any, then: Then = None) -> None:
        """Write owned rows times ``weight`` at ``out``."""
        self._gather(self._rows, weight, out, then)

    def product_back(self, grad: Any, slope: Any) -> None:
        """Write the gradient of the weight at ``slope``."""
        self._gather(self._columns, grad, slope)

    def dense(self) -> Any:
        """Refuse: the plan gives sparse features to cells that only multiply them."""
        raise PenstockError("sparse features are read as a matrix: this is a bug")

    with_ghosts = dense

    def tiles(self) -> Iterator[tuple[slice, Any]]:
        """Refuse."""
        raise PenstockError("sparse features are read as a matrix: this is a bug")

    def release(self) -> None:
        """Keep them."""

    def _gather(self, block: Block, x: Any, out: Any, then: Then = None) -> None:
        module = kernel("aggregate", x)

        def work(first: int, last: int) -> None:
            module.gather(block, x, out, first, last)
            if then is not None:
                then(first, last)

        self.around.edges(block, 0, block.rows, x.shape[1], work)
