"""Breadth-first searches of small graphs, from 64 sources at once: one bit of a word each.

A level visits every newly reached node once, for all sources that reached it, so this never follows
more edges than one search per source, and in a small world far fewer.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.centrality.dijkstra import largest_graph
from penstock.kernels.cpu.vector import bit_count, pointer, trailing_zeros

_WORD = 64


@njit(cache=True, nogil=True)
def add_paths(
    ptr: Array,
    indptr: Array,
    indices: Array,
    source_starts: Array,
    sources: Array,
    reached: Array,
    total: Array,
    inverse: Array,
    eccentricity: Array,
) -> None:
    """Add the results of paths from ``sources[source_starts[g]:source_starts[g + 1]]``."""
    largest, _ = largest_graph(ptr, indptr)
    words = np.zeros((3, largest), np.uint64)
    queues = np.empty((2, max(largest, _WORD) + 1), np.int64)
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        for begin in range(source_starts[graph], source_starts[graph + 1], _WORD):
            stop = min(begin + _WORD, source_starts[graph + 1])
            _search(
                first,
                size,
                indptr,
                indices,
                sources[begin:stop],
                words,
                queues,
                reached,
                total,
                inverse,
                eccentricity,
            )


@njit(cache=True)
def _search(
    first: int,
    size: int,
    indptr: Array,
    indices: Array,
    sources: Array,
    words: Array,
    queues: Array,
    reached: Array,
    total: Array,
    inverse: Array,
    eccentricity: Array,
) -> None:
    """Add the results of paths from at most 64 sources of a graph.

    Whether a neighbour is new is as good as random: a branch on it would often be mispredicted, so
    the queue's end advances by 0 or 1. The arrays belong to the caller, so pointers to them are
    safe.
    """
    starts, ends = pointer(indptr), pointer(indices)
    seen, now, then = pointer(words[0]), pointer(words[1]), pointer(words[2])
    queue, following = pointer(queues[0]), pointer(queues[1])
    for node in range(size):
        seen[node] = uint64(0)
    for i in range(len(sources)):
        source = sources[i] - first
        seen[source] = now[source] = uint64(1) << uint64(i)
        queue[i] = source
    active, level = len(sources), 0
    alive = ~uint64(0) >> uint64(_WORD - active)
    while active > 0:
        level += 1
        found = 0
        for i in range(active):
            node = queue[i]
            bits, now[node] = now[node], uint64(0)
            for edge in range(starts[first + node], starts[first + node + 1]):
                other = int64(ends[edge]) - first
                new, before = bits & ~seen[other], then[other]
                then[other] = before | new
                following[found] = other
                found += int64((before == uint64(0)) & (new != uint64(0)))
        some = uint64(0)
        for i in range(found):
            node = following[i]
            new, then[node] = then[node], uint64(0)
            seen[node] |= new
            now[node] = new
            some |= new
            count = bit_count(new)
            reached[first + node] += count
            total[first + node] += count * level
            inverse[first + node] += count / level
        ended = alive & ~some
        alive = some
        while ended != 0:
            eccentricity[sources[trailing_zeros(ended)]] = level - 1
            ended &= ended - uint64(1)
        queue, following = following, queue
        active = found
    everywhere = ~uint64(0)
    for node in range(size):
        everywhere &= seen[node]
    for i in range(len(sources)):
        if (everywhere >> uint64(i)) & uint64(1) == 0:
            eccentricity[sources[i]] = np.inf


@njit(cache=True, nogil=True)
def fill_distances(ptr: Array, indptr: Array, indices: Array, distances: Array) -> None:
    """Write the distances of all pairs of each graph with a path; the rest is -1."""
    largest, _ = largest_graph(ptr, indptr)
    queue = np.empty(largest, np.int64)
    row = 0
    for graph in range(len(ptr) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        for source in range(size):
            distances[row + source] = 0
            queue[0] = source
            at, filled = 0, 1
            while at < filled:
                node = queue[at]
                at += 1
                level = distances[row + node] + 1
                for edge in range(indptr[first + node], indptr[first + node + 1]):
                    other = indices[edge] - first
                    if distances[row + other] < 0:
                        distances[row + other] = level
                        queue[filled] = other
                        filled += 1
            row += size
