"""Fennel (Tsourakakis et al., WSDM 2014), balanced by load: nodes are placed as they stream by.

    parts = np.full(nodes, -1, np.int32);  loads, counts = np.zeros((2, k), np.int64)
    for each pass, for each row range:  stream_rows(...)

A node joins the part that holds most of its neighbours, less a price that grows with the square
root of the part's load. A later pass (restreaming) takes each node out and places it again,
knowing all others.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def stream_rows(
    indptr: Array,
    indices: Array,
    first_row: int,
    parts: Array,
    loads: Array,
    counts: Array,
    capacity: int,
    price: float,
) -> None:
    """Place the nodes of one row range; ``parts``, ``loads`` and ``counts`` change in place.

    indptr, indices  a row range of the graph; the load of a node is the length of its row
    parts            (nodes,) int32, -1: not placed yet
    loads, counts    (k,) int64: load and nodes of each part
    capacity         no part grows beyond it while another has space
    price            of one unit of load in a part of load 1

    A node without edges goes to the part with the fewest nodes.
    """
    k = len(loads)
    for row in range(len(indptr) - 1):
        node, load = first_row + row, int(indptr[row + 1] - indptr[row])
        if parts[node] >= 0:
            loads[parts[node]] -= load
            counts[parts[node]] -= 1
        neighbours = indices[indptr[row] : indptr[row + 1]]
        placed = parts[neighbours[neighbours != node]]
        links = np.bincount(placed[placed >= 0], minlength=k)
        scores = links - price * load * np.sqrt(loads)
        roomy = [p for p in range(k) if loads[p] + load <= capacity]
        if load == 0:
            best = int(np.argmin(counts))
        elif roomy:
            best = min(roomy, key=lambda p: (-scores[p], loads[p], p))
        else:
            best = int(np.argmin(loads))
        parts[node] = best
        loads[best] += load
        counts[best] += 1
