"""Blocks of rows with about equally many edges: what one thread takes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.csr import CSR
from penstock.kernels.ranks import EdgesOfRank, Ranks, cuts

_EDGES = 1 << 19  # edges and rows of a block


class RowBlock(NamedTuple):
    """Rows ``low .. high`` of a row range."""

    rows: CSR
    low: int
    high: int

    def arrays(self, *, weighted: bool = False) -> tuple[Array, Array, Array, int, int, int]:
        """Return what kernels take: indptr, indices, weights (or none), low, high, first row."""
        weights = self.rows.weights if weighted else None
        if isinstance(self.rows, EdgesOfRank):
            starts = self.rows.indptr[self.low : self.high + 1] - self.rows.first_edge
            mine = CSR(starts, self.rows.indices, weights, first_row=self.rows.first_row + self.low)
            return RowBlock(mine, 0, self.high - self.low).arrays(weighted=weighted)
        return (
            frozen_view(self.rows.indptr),
            frozen_view(self.rows.indices),
            frozen_view(np.empty(0) if weights is None else weights),
            self.low,
            self.high,
            self.rows.first_row,
        )


def shares_of(
    blocks: Sequence[RowBlock], nodes: int, ranks: Ranks | None
) -> tuple[list[int], list[int]]:
    """Return where each rank's blocks begin, and its nodes."""
    firsts = [*(each.rows.first_row + each.low for each in blocks), nodes]
    found = cuts(len(blocks), ranks)
    return found, [firsts[block] for block in found]


def row_blocks(rows: Sequence[CSR], items: int = _EDGES) -> list[RowBlock]:
    """Cut row ranges into blocks of about ``items`` edges and rows, by the graph alone."""
    found = []
    for each in rows:
        # Rows count, too: a block of a million isolated nodes is as much work.
        before = np.asarray(each.indptr) + np.arange(each.rows + 1)
        wanted = np.arange(items, int(before[-1]) + items, items)
        ends = np.unique(np.minimum(np.searchsorted(before, wanted, side="left"), each.rows))
        low = 0
        for high in ends.tolist():
            if high > low:
                found.append(RowBlock(each, low, high))
                low = high
    return found
