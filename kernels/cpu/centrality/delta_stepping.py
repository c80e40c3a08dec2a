"""Distances by weights: nodes wait in bins of equal width for their turn (Meyer and Sanders, 2003).

A node may be taken again if its distance falls meanwhile, but none waits in a heap. Each search is
of one thread; the order of nodes within a bin is arbitrary, so dijkstra.py has what needs it.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.dijkstra import largest_graph

_BINS = 1 << 12  # at most, about, that are in use at a time
_FREE, _NONE = -2, -1


@njit(cache=True)
def _bins_of(low: int, high: int, nodes: int, weights: Array) -> tuple[float, int]:
    """Return bins per unit of length, and the number that the longest edge leads over."""
    total = longest = 0.0
    for edge in range(low, high):
        total += weights[edge]
        longest = max(longest, weights[edge])
    edges = high - low
    if not longest > 0 or total == np.inf:
        return 0.0, 2
    # As many nodes in a bin as edges out of one, about.
    width = max(2 * total / edges * nodes / edges, longest / _BINS)
    scale = 1 / max(width, 1e-290)
    return scale, int(longest * scale) + 3


@njit(cache=True)
def _search(
    indptr: Array,
    indices: Array,
    weights: Array,
    first: int,
    source: int,
    scale: float,
    bins: int,
    heads: Array,
    links: Array,
    far: Array,
) -> None:
    """Write the distances from ``source`` to ``far``, which is infinite before.

    heads  (2, bins) or more: the first node of each bin, none before and after; and the last
    links  (2, size): of each node in a bin, the next and the one before; free before and after
    """
    after, before, tails, heads = links[0], links[1], heads[1], heads[0]
    far[source] = 0.0
    heads[0], tails[0], after[source], before[source] = source, source, _NONE, _NONE
    waiting, at = 1, 0
    while waiting > 0:
        node = heads[at]
        if node == _NONE:
            at = at + 1 if at + 1 < bins else 0
            continue
        heads[at], before[node] = after[node], _FREE
        if after[node] != _NONE:
            before[after[node]] = _NONE
        waiting -= 1
        distance = far[node]
        for edge in range(indptr[first + node], indptr[first + node + 1]):
            other = indices[edge] - first
            length = distance + weights[edge]
            if not length < far[other]:
                continue
            bin_ = int(length * scale) % bins
            if before[other] != _FREE:
                old = int(far[other] * scale) % bins
                far[other] = length
                if old == bin_:
                    continue
                if before[other] == _NONE:
                    heads[old] = after[other]
                else:
                    after[before[other]] = after[other]
                if after[other] == _NONE:
                    tails[old] = before[other]
                else:
                    before[after[other]] = before[other]
                waiting -= 1
            far[other] = length
            # Behind the others: each is taken before one is taken again.
            if heads[bin_] == _NONE:
                heads[bin_], before[other] = other, _NONE
            else:
                after[tails[bin_]], before[other] = other, tails[bin_]
            after[other], tails[bin_] = _NONE, other
            waiting += 1


@njit(cache=True)
def _new(ptr: Array, indptr: Array) -> tuple[Array, Array, Array]:
    most, _ = largest_graph(ptr, indptr)
    return (
        np.full((2, _BINS + 4), _NONE, np.int64),
        np.full((2, most), _FREE, np.int64),
        np.empty(most),
    )


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
    heads, links, far = _new(ptr, indptr)
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        scale, bins = _bins_of(indptr[first], indptr[first + size], size, weights)
        for i in range(source_starts[graph], source_starts[graph + 1]):
            source = sources[i] - first
            far[:size] = np.inf
            _search(indptr, indices, weights, first, source, scale, bins, heads, links, far)
            farthest = 0.0
            for node in range(size):
                farthest = max(farthest, far[node])
                if node != source and far[node] < np.inf:
                    reached[first + node] += 1
                    total[first + node] += far[node]
                    if far[node] > 0:
                        inverse[first + node] += 1 / far[node]
            eccentricity[first + source] = farthest


@njit(cache=True, nogil=True)
def fill_weighted_distances(
    ptr: Array, indptr: Array, indices: Array, weights: Array, distances: Array
) -> None:
    """Write the distances of all pairs of each graph with a path; the rest is inf."""
    heads, links, _ = _new(ptr, indptr)
    row = 0
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        scale, bins = _bins_of(indptr[first], indptr[first + size], size, weights)
        for source in range(size):
            far = distances[row : row + size]
            _search(indptr, indices, weights, first, source, scale, bins, heads, links, far)
            row += size
