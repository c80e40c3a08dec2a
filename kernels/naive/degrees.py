"""Degrees of a graph without its removed nodes: the reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR


def add_degrees(
    indptr: Array, indices: Array, first_row: int, keep: Array, degrees: Array, *, inward: bool
) -> None:
    """Add to ``degrees`` each row's neighbours, counting only edges between kept nodes.

    keep (nodes,) bool; degrees (nodes,) int64; ``inward`` counts an edge at its target as well
    """
    sources = np.repeat(np.arange(first_row, first_row + len(indptr) - 1), np.diff(indptr))
    both = keep[sources] & keep[indices]
    np.add.at(degrees, sources[both], 1)
    if inward:
        np.add.at(degrees, indices[both], 1)


def count_edges(rows: Sequence[CSR]) -> tuple[int, int]:
    """Return the numbers of distinct entries of all rows, and of those that are loops."""
    pairs = [np.stack([each.sources(), each.indices]) for each in rows]
    found = np.unique(np.concatenate([np.empty((2, 0), np.int64), *pairs], axis=1), axis=1)
    return found.shape[1], int((found[0] == found[1]).sum())
