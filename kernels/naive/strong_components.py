"""Strongly connected components of one graph, given as consecutive row ranges.

centrality.py has those of many small graphs at once, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype


def strong_components(rows: Sequence[CSR], *, threads: int | None = None) -> Array:
    """Return the component of each node: 0, 1, ... in the order of their smallest members.

    threads  [default: all cores]; they do not change the result
    """
    nodes = sum(each.rows for each in rows)
    reaches = np.eye(nodes, dtype=bool)
    for each in rows:
        reaches[each.sources(), each.indices] = True
    for middle in range(nodes):
        reaches |= np.outer(reaches[:, middle], reaches[middle])
    least = (reaches & reaches.T).argmax(1) if nodes else np.empty(0, np.int64)
    return np.unique(least, return_inverse=True)[1].astype(id_dtype(nodes))
