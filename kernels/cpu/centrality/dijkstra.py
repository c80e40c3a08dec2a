"""The heap of Dijkstra's searches for weighted betweenness: ordered by distance, then by age.

Ties are broken as in NetworkX, as the counts of paths over edges of length 0 depend on it.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


@njit(cache=True)
def new_heap(entries: int) -> tuple[Array, Array, Array, Array]:
    """Return an empty heap of this capacity: distances, ages, origins, targets."""
    return (
        np.empty(entries, np.float64),
        np.empty(entries, np.int64),
        np.empty(entries, np.int64),
        np.empty(entries, np.int64),
    )


@njit(cache=True)
def push(
    heap: tuple[Array, Array, Array, Array], size: int, far: float, age: int, by: int, node: int
) -> None:
    """Add an entry to a heap of ``size`` entries."""
    distances, ages, origins, nodes = heap
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if distances[above] <= far:  # the entry there is older
            break
        distances[at], ages[at] = distances[above], ages[above]
        origins[at], nodes[at] = origins[above], nodes[above]
        at = above
    distances[at], ages[at], origins[at], nodes[at] = far, age, by, node


@njit(cache=True)
def pop(heap: tuple[Array, Array, Array, Array], size: int) -> tuple[float, int, int]:
    """Remove the nearest entry, of several the oldest, from a heap of ``size`` entries."""
    distances, ages, origins, nodes = heap
    nearest = distances[0], origins[0], nodes[0]
    last = size - 1
    far, age = distances[last], ages[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and (
            distances[below + 1] < distances[below]
            or (distances[below + 1] == distances[below] and ages[below + 1] < ages[below])
        ):
            below += 1
        if far < distances[below] or (far == distances[below] and age < ages[below]):
            break
        distances[at], ages[at] = distances[below], ages[below]
        origins[at], nodes[at] = origins[below], nodes[below]
        at = below
    distances[at], ages[at], origins[at], nodes[at] = far, age, origins[last], nodes[last]
    return nearest


@njit(cache=True)
def largest_graph(ptr: Array, indptr: Array) -> tuple[int, int]:
    """Return the largest number of nodes of a graph, and the largest number of edges."""
    nodes = edges = 0
    for graph in range(len(ptr) - 1):
        nodes = max(nodes, ptr[graph + 1] - ptr[graph])
        edges = max(edges, indptr[ptr[graph + 1]] - indptr[ptr[graph]])
    return nodes, edges
