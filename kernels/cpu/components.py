"""Connected components in Numba: union-find with path halving; meaning as in naive/components.py.

Sequential on purpose: it is bound by memory latency, and one pass over the edges costs less than
the several passes of a parallel label propagation.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array, frozen_view
from penstock.csr import id_dtype
from penstock.kernels.compiled import njit


def new_forest(nodes: int) -> Array:
    """Return ``parent``: every node is a tree; (nodes,) int32 or int64."""
    return np.arange(nodes, dtype=id_dtype(nodes))


def union_rows(parent: Array, indptr: Array, indices: Array, first_row: int = 0) -> None:
    """Join row ``first_row + r`` with its neighbours ``indices[indptr[r]:indptr[r + 1]]``."""
    _union_rows(parent, frozen_view(indptr), frozen_view(indices), first_row)


def component_labels(parent: Array) -> Array:
    """Return the component of each node: 0, 1, ... in the order of their smallest members."""
    labels: Array = _component_labels(frozen_view(parent))
    return labels


@njit(cache=True, nogil=True)
def _union_rows(parent: Array, indptr: Array, indices: Array, first_row: int) -> None:
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        if start == stop:
            continue
        a = first_row + row
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        for edge in range(start, stop):
            b = indices[edge]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if b < a:
                parent[a] = b
                a = b
            elif a < b:
                parent[b] = a


@njit(cache=True, nogil=True)
def _component_labels(parent: Array) -> Array:
    labels = np.empty_like(parent)
    count = 0
    for node in range(len(parent)):
        # The parent is smaller, so its label exists.
        if parent[node] == node:
            labels[node] = count
            count += 1
        else:
            labels[node] = labels[parent[node]]
    return labels
