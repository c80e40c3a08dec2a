"""Connected components, direction ignored: a forest whose trees grow together edge by edge.

    parent = new_forest(nodes)
    for each row range:  union_rows(parent, indptr, indices, first_row)
    labels = component_labels(parent)

    labels = components(rows, symmetric=True)   # the same of all row ranges at once

Rows may come in any order and any cut, so a graph larger than memory goes through shard by shard.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype
from penstock.kernels.ranks import Ranks


def new_forest(nodes: int) -> Array:
    """Return ``parent``: every node is a tree; (nodes,) int32 or int64."""
    return np.arange(nodes, dtype=id_dtype(nodes))


def union_rows(parent: Array, indptr: Array, indices: Array, first_row: int = 0) -> None:
    """Join row ``first_row + r`` with its neighbours ``indices[indptr[r]:indptr[r + 1]]``.

    ``parent`` changes in place; the smallest member of a tree is its root, so that
    ``parent[i] <= i`` always.
    """
    for row in range(len(indptr) - 1):
        for neighbour in indices[indptr[row] : indptr[row + 1]]:
            a, b = _root(parent, first_row + row), _root(parent, int(neighbour))
            parent[max(a, b)] = min(a, b)


def component_labels(parent: Array) -> Array:
    """Return the component of each node: 0, 1, ... in the order of their smallest members."""
    roots = np.array([_root(parent, node) for node in range(len(parent))], dtype=parent.dtype)
    return np.unique(roots, return_inverse=True)[1].astype(parent.dtype)


def components(
    rows: Sequence[CSR],
    *,
    symmetric: bool,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> Array:
    """Return the component of each node of a graph, given as consecutive row ranges.

    symmetric  every edge is stored at both ends: then most need not be read
    threads    [default: all cores]; they do not change the result
    ranks      as in pagerank.py
    """
    parent = new_forest(sum(each.rows for each in rows))
    for each in rows:
        union_rows(parent, each.indptr, each.indices, each.first_row)
    return component_labels(parent)


def _root(parent: Array, node: int) -> int:
    while parent[node] != node:
        node = int(parent[node])
    return node
