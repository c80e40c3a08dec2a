"""Dijkstra's searches of small graphs: a binary heap ordered by distance, then by age.

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
def search(
    indptr: Array,
    indices: Array,
    weights: Array,
    first: int,
    source: int,
    heap: tuple[Array, Array, Array, Array],
    far: Array,
    order: Array,
) -> int:
    """Write the distances from ``source`` to ``far``, which is infinite before, and the order.

    far    (size,), nodes relative to ``first``, like all nodes here
    order  (size,): reached nodes, nearest first; their number is returned
    """
    far[source] = 0.0
    push(heap, 0, 0.0, 0, source, source)
    entries, age, count = 1, 1, 0
    while entries > 0:
        distance, _, node = pop(heap, entries)
        entries -= 1
        if distance > far[node]:
            continue  # a shorter path reached it before
        order[count] = node
        count += 1
        for edge in range(indptr[first + node], indptr[first + node + 1]):
            other = indices[edge] - first
            length = distance + weights[edge]
            if length < far[other]:
                far[other] = length
                push(heap, entries, length, age, node, other)
                entries += 1
                age += 1
    return count


@njit(cache=True)
def largest_graph(ptr: Array, indptr: Array) -> tuple[int, int]:
    """Return the largest number of nodes of a graph, and the largest number of edges."""
    nodes = edges = 0
    for graph in range(len(ptr) - 1):
        nodes = max(nodes, ptr[graph + 1] - ptr[graph])
        edges = max(edges, indptr[ptr[graph + 1]] - indptr[ptr[graph]])
    return nodes, edges


@njit(cache=True, nogil=True)
def add_weighted_paths(
    ptr: Array,
    indptr: Array,
    indices: Array,
    weights: Array,
    source_starts: Array,
    sources: Array,
    reached: Array,
    total: Array,
    inverse: Array,
    eccentricity: Array,
) -> None:
    """Add the results of paths from ``sources[source_starts[g]:source_starts[g + 1]]``."""
    most, edges = largest_graph(ptr, indptr)
    heap, far, order = new_heap(edges + 1), np.empty(most), np.empty(most, np.int64)
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        for i in range(source_starts[graph], source_starts[graph + 1]):
            source = sources[i] - first
            far[:size] = np.inf
            count = search(indptr, indices, weights, first, source, heap, far, order)
            eccentricity[first + source] = far[order[count - 1]] if count == size else np.inf
            for k in range(count):
                node = order[k]
                if node != source:
                    reached[first + node] += 1
                    total[first + node] += far[node]
                    if far[node] > 0:
                        inverse[first + node] += 1 / far[node]


@njit(cache=True, nogil=True)
def fill_weighted_distances(
    ptr: Array, indptr: Array, indices: Array, weights: Array, distances: Array
) -> None:
    """Write the distances of all pairs of each graph with a path; the rest is inf."""
    most, edges = largest_graph(ptr, indptr)
    heap, order = new_heap(edges + 1), np.empty(most, np.int64)
    row = 0
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        for source in range(size):
            far = distances[row : row + size]
            search(indptr, indices, weights, first, source, heap, far, order)
            row += size
