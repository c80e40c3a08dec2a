"""Brandes' betweenness of small graphs; sources with a single exit share a search.

A path from a node with a single neighbour, other than itself, always starts with that neighbour. So
these nodes form trees: the root of each is a node with none or several neighbours, or one of a
cycle. One search from the root serves all sources of its tree, as degree-1 folding does for leaves
of undirected graphs. Shares passed back for a target are multiplied by the number of sources that
reach the target through the root: all of the tree, except those with the target on their way to the
root. Nodes on the way to the root are counted there. In control-flow graphs this saves about half
of all searches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.dijkstra import largest_graph


@njit(cache=True, nogil=True)
def add_folded_betweenness(
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

    Paths are counted in float64: a grid has more than 64 bits hold. A search keeps its nodes' data
    by their places in its queue, and the edges of shortest paths in a list, which is read
    backwards; so no graph may have 2 ** 32 nodes or edges.
    """
    most, edges = largest_graph(ptr, indptr)
    rows, heads = np.empty(most + 1, np.uint32), np.empty(edges, np.uint32)
    only, root = np.empty(most, np.int64), np.empty(most, np.int64)
    newest, older = np.empty(most, np.int64), np.empty(most, np.int64)  # sources of a root
    behind = np.zeros(most, np.int64)
    # A place counts from ``base``, which grows: values of earlier searches are below it.
    places, queue = np.empty(most, np.int64), np.empty(most, np.uint32)
    paths, own, shares = np.empty(most), np.empty(most), np.empty(most)
    tails, ends = np.empty(edges, np.uint32), np.empty(edges, np.uint32)  # of edges, by place
    used = np.empty(edges if len(arcs) > 0 else 0, np.uint32)
    for graph in range(len(ptr) - 1):
        if source_starts[graph] == source_starts[graph + 1]:
            continue
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        lowest = indptr[first]
        _copy(indptr[first : first + size + 1], indices, first, rows, heads, only)
        _plant(size, heads, only, root)
        newest[:size] = places[:size] = -1
        for i in range(source_starts[graph], source_starts[graph + 1]):
            source = sources[i] - first
            older[source] = newest[root[source]]
            newest[root[source]] = source
        base = 0
        for start in range(size):
            if newest[start] < 0:
                continue
            # Behind a node of the tree are the sources that pass it on the way to the root.
            count, source = 0, newest[start]
            while source >= 0:
                count += 1
                node = source
                while node != start:
                    behind[node] += 1
                    node = np.int64(heads[only[node]])
                source = older[source]
            places[start], paths[0], queue[0] = base, 1.0, start
            filled, found, level, following = 1, 0, 0, 1
            while level < following:
                for at in range(level, following):
                    node = np.int64(queue[at])
                    for edge in range(np.int64(rows[node]), np.int64(rows[node + 1])):
                        other = np.int64(heads[edge])
                        place = places[other] - base
                        if place < 0:
                            place = filled
                            places[other] = base + place
                            queue[place], paths[place] = other, 0.0
                            filled += 1
                        if place >= following:
                            paths[place] += paths[at]
                            tails[found], ends[found] = at, place
                            if len(used) > 0:
                                used[found] = edge
                            found += 1
                level, following = following, filled
            for at in range(filled):
                own[at], shares[at] = (count - behind[queue[at]]) / paths[at], 0.0
            for i in range(found - 1, -1, -1):
                tail, place = np.int64(tails[i]), np.int64(ends[i])
                share = own[place] + shares[place]
                shares[tail] += share
                if len(used) > 0:
                    arcs[lowest + np.int64(used[i])] += share * paths[tail]
            for at in range(1, filled):
                node = np.int64(queue[at])
                nodes[first + node] += shares[at] * paths[at]
                if endpoints:
                    nodes[first + node] += count - behind[node]
            source = newest[start]
            while source >= 0:
                # Targets from here on: nodes that the root reaches, and nodes before the root.
                left, node = filled, source
                while node != start:
                    behind[node] = 0
                    left += places[node] < base
                    node = np.int64(heads[only[node]])
                if endpoints:
                    nodes[first + source] += left - 1
                node = source
                while node != start:
                    left -= 1
                    if len(used) > 0:
                        arcs[lowest + only[node]] += left
                    node = np.int64(heads[only[node]])
                    nodes[first + node] += left if endpoints else left - 1
                source = older[source]
            base += filled


@njit(cache=True)
def _copy(
    starts: Array, indices: Array, first: int, rows: Array, heads: Array, only: Array
) -> None:
    """Copy a graph, numbered from 0, with each node's only edge to another node, or -1."""
    lowest = starts[0]
    for node in range(len(starts) - 1):
        ways, way = 0, -1
        rows[node] = starts[node] - lowest
        for edge in range(starts[node] - lowest, starts[node + 1] - lowest):
            heads[edge] = indices[lowest + edge] - first
            if indices[lowest + edge] - first != node:
                ways, way = ways + 1, edge
        only[node] = way if ways == 1 else -1
    rows[len(starts) - 1] = starts[-1] - lowest


@njit(cache=True)
def _plant(size: int, heads: Array, only: Array, root: Array) -> None:
    """Write the root of each node's tree; one node of a cycle of single edges becomes a root."""
    root[:size] = -1
    for start in range(size):
        mark = -2 - start
        node: Any = start
        while root[node] == -1:
            root[node] = mark
            if only[node] >= 0:
                node = np.int64(heads[only[node]])
        # The walk ended at a node without a single edge, closed a cycle, or met an earlier walk.
        found = node if root[node] == mark else root[node]
        node = start
        while root[node] == mark:
            root[node] = found
            if only[node] >= 0:
                node = np.int64(heads[only[node]])
