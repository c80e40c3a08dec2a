"""Strongly connected components by Tarjan's search, on one thread."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import entry


@entry()
def tarjan(indptr: Array, indices: Array) -> tuple[Array, Array]:
    """Return the smallest node of the component of each node, and the component's number.

    A component has a higher number than all those that it reaches.
    """
    nodes = len(indptr) - 1
    number = np.full(nodes, -1, np.int64)  # of a node, then of its component
    low = np.empty(nodes, np.int64)
    edge = np.empty(nodes, np.int64)  # the next edge to follow
    path, stack = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    smallest = np.full(nodes, -1, np.int64)
    numbered = completed = 0
    for root in range(nodes):
        if number[root] >= 0:
            continue
        depth, stacked = 0, 0
        path[0] = root
        while depth >= 0:
            node = path[depth]
            if number[node] < 0:
                number[node] = low[node] = numbered
                numbered += 1
                edge[node] = indptr[node]
                stack[stacked] = node
                stacked += 1
            deeper = False
            while edge[node] < indptr[node + 1]:
                other = indices[edge[node]]
                edge[node] += 1
                if number[other] < 0:
                    depth += 1
                    path[depth] = other
                    deeper = True
                    break
                if smallest[other] < 0:  # it is on the stack
                    low[node] = min(low[node], number[other])
            if deeper:
                continue
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[node])
            if low[node] == number[node]:
                begin = stacked - 1
                while stack[begin] != node:
                    begin -= 1
                least = stack[begin:stacked].min()
                for at in range(begin, stacked):
                    smallest[stack[at]], number[stack[at]] = least, completed
                completed += 1
                stacked = begin
    return smallest, number
