"""PageRank of small graphs by power iteration."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.dijkstra import largest_graph


@njit(cache=True, nogil=True)
def power_iteration(
    ptr: Array,
    indptr: Array,
    indices: Array,
    weights: Array,
    damping: float,
    tolerance: float,
    most: int,
    ranks: Array,
    steps: Array,
) -> None:
    """Write the ranks of each graph, and the number of steps to convergence, or -1.

    weights  (edges,); empty: all are 1
    """
    largest, _ = largest_graph(ptr, indptr)
    before, sums = np.empty(largest), np.empty(largest)
    weighted = len(weights) > 0
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        x = ranks[first : first + size]
        steps[graph] = 1 if size == 0 else -1
        for node in range(size):
            x[node] = 1.0 / size
            low, high = indptr[first + node], indptr[first + node + 1]
            sums[node] = weights[low:high].sum() if weighted else high - low
        for step in range(1, most + 1 if size > 0 else 0):
            lost = 0.0
            for node in range(size):
                before[node] = x[node]
                x[node] = 0.0
                if sums[node] == 0:
                    lost += before[node]
            for node in range(size):
                if sums[node] == 0:
                    continue
                gives = before[node] / sums[node]
                for edge in range(indptr[first + node], indptr[first + node + 1]):
                    x[indices[edge] - first] += gives * weights[edge] if weighted else gives
            change = 0.0
            for node in range(size):
                x[node] = damping * (x[node] + lost / size) + (1.0 - damping) / size
                change += abs(x[node] - before[node])
            if change < size * tolerance:
                steps[graph] = step
                break
