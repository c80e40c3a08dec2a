"""Strongly connected components."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit


def first_of_component(indptr: Array, indices: Array) -> Array:
    """Return the smallest node of the strongly connected component of each node of one graph."""
    nodes = len(indptr) - 1
    labels = np.empty(nodes, np.int32)
    tarjan(np.array([0, nodes]), indptr, indices, False, labels)
    found: Array = np.unique(labels, return_index=True)[1][labels]
    return found


@njit(cache=True, nogil=True)
def tarjan(ptr: Array, indptr: Array, indices: Array, topological: bool, labels: Array) -> None:
    """Write the strongly connected component of each node, without recursion."""
    largest = 0
    for graph in range(len(ptr) - 1):
        largest = max(largest, ptr[graph + 1] - ptr[graph])
    number, low = np.empty(largest, np.int64), np.empty(largest, np.int64)
    edge = np.empty(largest, np.int64)  # the next edge to follow
    path, stack = np.empty(largest, np.int64), np.empty(largest, np.int64)
    smallest, label = np.empty(largest, np.int64), np.empty(largest, np.int32)
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        number[:size] = -1
        smallest[:size] = -1
        numbered = completed = 0
        for root in range(size):
            if number[root] >= 0:
                continue
            depth, stacked = 0, 0
            path[0] = root
            while depth >= 0:
                node = path[depth]
                if number[node] < 0:
                    number[node] = low[node] = numbered
                    numbered += 1
                    edge[node] = indptr[first + node]
                    stack[stacked] = node
                    stacked += 1
                deeper = False
                while edge[node] < indptr[first + node + 1]:
                    other = indices[edge[node]] - first
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
                    smallest[stack[begin:stacked]] = least
                    label[least] = completed  # after all those that it reaches
                    completed += 1
                    stacked = begin
        found = 0
        for node in range(size):
            if not topological and smallest[node] == node:
                label[node] = found
                found += 1
            labels[first + node] = label[smallest[node]]
