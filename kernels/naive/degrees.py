"""Degrees of a graph without its removed nodes: the reference."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


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
