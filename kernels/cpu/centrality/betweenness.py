"""Brandes' betweenness: one search per source, then shares passed back to it."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.dijkstra import largest_graph, new_heap, pop, push


@njit(cache=True, nogil=True)
def add_betweenness(
    ptr: Array,
    indptr: Array,
    indices: Array,
    source_starts: Array,
    sources: Array,
    endpoints: bool,
    nodes: Array,
    arcs: Array,
) -> None:
    """Add each source's shares to ``nodes`` and, unless it is empty, to ``arcs``.

    Paths are counted in float64: a grid has more than 64 bits hold. It needs memory only for the
    nodes of a graph; folded.py is faster if memory for edges is available.
    """
    most, _ = largest_graph(ptr, indptr)
    levels, queue = np.full(most, -1, np.int64), np.empty(most, np.int64)
    paths, shares = np.zeros(most), np.empty(most)
    for graph in range(len(ptr) - 1):
        first = ptr[graph]
        for i in range(source_starts[graph], source_starts[graph + 1]):
            source = sources[i] - first
            levels[source], paths[source], queue[0] = 0, 1.0, source
            at, filled = 0, 1
            while at < filled:
                node = queue[at]
                at += 1
                level, count = levels[node] + 1, paths[node]
                for edge in range(indptr[first + node], indptr[first + node + 1]):
                    other = indices[edge] - first
                    if levels[other] < 0:
                        levels[other] = level
                        queue[filled] = other
                        filled += 1
                    if levels[other] == level:
                        paths[other] += count
            if endpoints:
                nodes[first + source] += filled - 1
            for at in range(filled - 1, -1, -1):
                node = queue[at]
                level, count, share = levels[node] + 1, paths[node], 0.0
                for edge in range(indptr[first + node], indptr[first + node + 1]):
                    other = indices[edge] - first
                    if levels[other] == level:
                        share += shares[other]
                        if len(arcs) > 0:
                            arcs[edge] += count * shares[other]
                share *= count
                shares[node] = (1.0 + share) / count
                if node != source:
                    nodes[first + node] += share + (1.0 if endpoints else 0.0)
            for at in range(filled):
                levels[queue[at]], paths[queue[at]] = -1, 0.0


@njit(cache=True, nogil=True)
def add_weighted_betweenness(
    ptr: Array,
    indptr: Array,
    indices: Array,
    weights: Array,
    source_starts: Array,
    sources: Array,
    endpoints: bool,
    nodes: Array,
    arcs: Array,
) -> None:
    """Add each source's shares to ``nodes`` and, unless it is empty, to ``arcs``.

    Predecessors are kept in lists, as those at equal distance, over edges of weight 0, do not
    follow from distances.
    """
    most, edges = largest_graph(ptr, indptr)
    heap, order = new_heap(edges + 1), np.empty(most, np.int64)
    seen, done = np.full(most, np.inf), np.zeros(most, np.bool_)
    paths, shares = np.zeros(most), np.zeros(most)
    last, before, tail = np.full(most, -1), np.empty(edges, np.int64), np.empty(edges, np.int64)
    for graph in range(len(ptr) - 1):
        first = ptr[graph]
        base = indptr[first]
        for i in range(source_starts[graph], source_starts[graph + 1]):
            source = sources[i] - first
            seen[source], paths[source] = 0.0, 1.0
            push(heap, 0, 0.0, 0, source, source)
            entries, age, count = 1, 1, 0
            while entries > 0:
                far, by, node = pop(heap, entries)
                entries -= 1
                if done[node]:
                    continue
                done[node] = True
                paths[node] += paths[by]
                order[count] = node
                count += 1
                for edge in range(indptr[first + node], indptr[first + node + 1]):
                    other = indices[edge] - first
                    length = far + weights[edge]
                    if not done[other] and length < seen[other]:
                        seen[other] = length
                        push(heap, entries, length, age, node, other)
                        entries += 1
                        age += 1
                        paths[other] = 0.0
                        last[other] = -1
                    elif length == seen[other]:
                        paths[other] += paths[node]
                    else:
                        continue
                    tail[edge - base], before[edge - base] = node, last[other]
                    last[other] = edge - base
            if endpoints:
                nodes[first + source] += count - 1
            for at in range(count - 1, -1, -1):
                node = order[at]
                # More paths than a float can count: no share of them is known.
                share = (1.0 + shares[node]) / paths[node] if paths[node] < np.inf else np.nan
                edge = last[node]
                while edge >= 0:
                    part = paths[tail[edge]] * share
                    shares[tail[edge]] += part
                    if len(arcs) > 0:
                        arcs[base + edge] += part
                    edge = before[edge]
                if node != source:
                    nodes[first + node] += shares[node] + (1.0 if endpoints else 0.0)
            for at in range(count):
                node = order[at]
                seen[node], done[node], last[node] = np.inf, False, -1
                paths[node], shares[node] = 0.0, 0.0
