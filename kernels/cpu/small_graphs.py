"""From edges of many small graphs in tables to a batch: see naive/small_graphs.py.

Work stays within a graph, whose rows and nodes fit into a cache. All functions release the GIL and
run on one thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array, frozen_view
from penstock.kernels.compiled import entry, njit
from penstock.kernels.cpu.search import lower_bound
from penstock.kernels.cpu.vector import trailing_zeros

__all__ = [
    "NO_SOURCE",
    "NO_TARGET",
    "number_nodes",
    "parallel_edges",
    "rows_of_edges",
    "self_loops",
    "structures",
]

NO_SOURCE, NO_TARGET = 1, 2
LANES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # seeds of 64 bits each
# If ids are denser than this, a table of their range is faster than sorting.
_SPARSE = 8
_MATRIX_WORDS = 1 << 15  # of bits: 256 KiB, which a core's cache holds


def number_nodes(
    starts: Array, sources: Array, targets: Array, flags: Array
) -> tuple[Array, Array, Array, Array]:
    """Number the nodes of each graph in the order of their ids."""
    us, vs = np.empty(len(sources), np.int32), np.empty(len(sources), np.int32)
    names, ptr = np.empty(2 * len(sources), np.int64), np.empty(len(starts), np.int64)
    some = flags if flags.any() else flags[:0]
    ends = frozen_view(sources), frozen_view(targets)
    nodes = _number_nodes(starts, *ends, some, names, ptr, us, vs)
    return names[:nodes].copy(), ptr, us, vs


def rows_of_edges(
    starts: Array,
    ptr: Array,
    us: Array,
    vs: Array,
    weights: Array | None,
    *,
    directed: bool,
    added: bool = False,
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return indptr, indices, weights and sums of all graphs side by side, as in a GraphBatch."""
    most = len(us) if directed else 2 * len(us)
    indptr, indices = np.empty(int(ptr[-1]) + 1, np.int64), np.empty(most, np.int32)
    given = np.empty(0) if weights is None else weights
    found, sums = np.empty(0 if weights is None else most), np.empty(most if added else 0)
    rows = starts, ptr, us, vs, given
    edges, arcs = _fill_rows(*rows, directed, indptr, indices, found, sums)
    shortest = None if weights is None else found[:edges]
    return indptr, indices[:edges], shortest, sums[:edges] if added and edges < arcs else None


def structures(ptr: Array, indptr: Array, indices: Array, *weights: Array) -> Array:
    """Return 128 bits of each graph, and its number of nodes: (graphs, 3) uint64."""
    bits = [column.view(np.uint64) for column in weights]
    bits += [np.empty(0, np.uint64)] * (2 - len(bits))
    own, sums = bits
    return _structures(ptr, indptr, indices, own, sums, LANES)


@njit(cache=True, nogil=True)
def _number_nodes(
    starts: Array,
    sources: Array,
    targets: Array,
    flags: Array,
    names: Array,
    ptr: Array,
    us: Array,
    vs: Array,
) -> int:
    table = np.zeros(1024, np.int32)
    nodes = 0
    ptr[0] = 0
    whole = len(flags) == 0
    for graph in range(len(starts) - 1):
        first, stop = starts[graph], starts[graph + 1]
        ends = 0
        low, high = np.int64(0), np.int64(0)
        if whole and first < stop:
            ends = 2 * (stop - first)
            low = high = sources[first]
            for row in range(first, stop):
                low, high = min(low, sources[row]), max(high, sources[row])
            for row in range(first, stop):
                low, high = min(low, targets[row]), max(high, targets[row])
        elif not whole:
            for row in range(first, stop):
                if flags[row] & 1 == 0:
                    end = sources[row]
                    low, high = (end, end) if ends == 0 else (min(low, end), max(high, end))
                    ends += 1
                if flags[row] & 2 == 0:
                    end = targets[row]
                    low, high = (end, end) if ends == 0 else (min(low, end), max(high, end))
                    ends += 1
        span = uint64(high) - uint64(low)  # of 64 bits, which a signed difference may exceed
        if span < uint64(_SPARSE * ends):
            size = np.int64(span) + 1
            if size > len(table):
                table = np.zeros(2 * size, np.int32)
            for row in range(first, stop):
                if whole or flags[row] & 1 == 0:
                    table[sources[row] - low] = 1
                if whole or flags[row] & 2 == 0:
                    table[targets[row] - low] = 1
            count = 0
            for at in range(size):
                if table[at] != 0:
                    names[nodes + count] = low + at
                    table[at] = count
                    count += 1
            for row in range(first, stop):
                us[row] = table[sources[row] - low] if whole or flags[row] & 1 == 0 else -1
                vs[row] = table[targets[row] - low] if whole or flags[row] & 2 == 0 else -1
            table[:size] = 0
        else:
            ids = np.empty(ends, np.int64)
            at = 0
            for row in range(first, stop):
                if whole or flags[row] & 1 == 0:
                    ids[at] = sources[row]
                    at += 1
                if whole or flags[row] & 2 == 0:
                    ids[at] = targets[row]
                    at += 1
            ids.sort()
            count = 0
            for at in range(ends):
                if at == 0 or ids[at] != ids[at - 1]:
                    names[nodes + count] = ids[at]
                    count += 1
            own = names[nodes : nodes + count]
            for row in range(first, stop):
                here = whole or flags[row] & 1 == 0
                us[row] = lower_bound(own, 0, count, sources[row]) if here else -1
                here = whole or flags[row] & 2 == 0
                vs[row] = lower_bound(own, 0, count, targets[row]) if here else -1
        nodes += count
        ptr[graph + 1] = nodes
    return nodes


@njit(cache=True, nogil=True)
def _fill_rows(
    starts: Array,
    ptr: Array,
    us: Array,
    vs: Array,
    weights: Array,
    directed: bool,
    indptr: Array,
    indices: Array,
    found: Array,
    sums: Array,
) -> tuple[int, int]:
    weighted, added = len(found) > 0, len(sums) > 0
    most_rows, most_nodes = 0, 0
    for graph in range(len(starts) - 1):
        most_rows = max(most_rows, starts[graph + 1] - starts[graph])
        most_nodes = max(most_nodes, ptr[graph + 1] - ptr[graph])
    most = most_rows if directed else 2 * most_rows
    begins = np.empty(most_nodes + 1, np.int64)
    # Sorted by target, then, which keeps that order, by source.
    by_target, of_target = np.empty(most, np.int32), np.empty(most, np.int32)
    by_source = np.empty(most, np.int32)
    lengths, sorted_lengths = np.empty(most if weighted else 0), np.empty(most if weighted else 0)
    # For a dense graph without weights a matrix of bits sorts and drops duplicates.
    matrix = np.zeros(_MATRIX_WORDS, np.uint64)
    edges, listed = 0, 0
    indptr[0] = 0
    for graph in range(len(starts) - 1):
        first, size = ptr[graph], ptr[graph + 1] - ptr[graph]
        across = (size + 63) >> 6
        rows = starts[graph + 1] - starts[graph]
        if not weighted and size * across <= min(_MATRIX_WORDS, 4 * rows):
            arcs, begin = 0, edges
            for row in range(starts[graph], starts[graph + 1]):
                u, v = us[row], vs[row]
                if u < 0 or v < 0:
                    continue
                matrix[u * across + (v >> 6)] |= uint64(1) << uint64(v & 63)
                arcs += 1
                if not directed and u != v:
                    arcs += 1
                    matrix[v * across + (u >> 6)] |= uint64(1) << uint64(u & 63)
            for node in range(size):
                for word in range(across):
                    bits = matrix[node * across + word]
                    matrix[node * across + word] = uint64(0)
                    base = first + 64 * word
                    while bits != 0:
                        indices[edges] = base + trailing_zeros(bits)
                        edges += 1
                        bits &= bits - uint64(1)
                indptr[first + node + 1] = edges
            if not added or edges - begin == arcs:
                sums[begin : edges if added else begin] = 1.0
                listed += arcs
                continue
            edges = begin
        begins[: size + 1] = 0
        for row in range(starts[graph], starts[graph + 1]):
            u, v = us[row], vs[row]
            if u < 0 or v < 0:
                continue
            begins[v + 1] += 1
            if not directed and u != v:
                begins[u + 1] += 1
        for node in range(size):
            begins[node + 1] += begins[node]
        arcs = begins[size]
        listed += arcs
        for row in range(starts[graph], starts[graph + 1]):
            u, v = us[row], vs[row]
            if u < 0 or v < 0:
                continue
            at = begins[v]
            begins[v] += 1
            by_target[at], of_target[at] = u, v
            if weighted:
                lengths[at] = weights[row]
            if not directed and u != v:
                at = begins[u]
                begins[u] += 1
                by_target[at], of_target[at] = v, u
                if weighted:
                    lengths[at] = weights[row]
        begins[: size + 1] = 0
        for arc in range(arcs):
            begins[by_target[arc] + 1] += 1
        for node in range(size):
            begins[node + 1] += begins[node]
        for arc in range(arcs):
            u = by_target[arc]
            at = begins[u]
            begins[u] += 1
            by_source[at] = of_target[arc]
            if weighted:
                sorted_lengths[at] = lengths[arc]
        begin = 0
        for node in range(size):
            last = -1
            for at in range(begin, begins[node]):
                v = by_source[at]
                if v != last:
                    indices[edges] = first + v
                    if weighted:
                        found[edges] = sorted_lengths[at]
                    if added:
                        sums[edges] = sorted_lengths[at] if weighted else 1.0
                    edges += 1
                    last = v
                    continue
                if weighted:
                    found[edges - 1] = min(found[edges - 1], sorted_lengths[at])
                if added:
                    sums[edges - 1] += sorted_lengths[at] if weighted else 1.0
            begin = begins[node]
            indptr[first + node + 1] = edges
    return edges, listed


@entry()
def parallel_edges(indptr: Array, indices: Array) -> bool:
    """Return whether a row of ascending neighbours has a repeated one."""
    for row in range(len(indptr) - 1):
        for edge in range(indptr[row] + 1, indptr[row + 1]):
            if indices[edge] == indices[edge - 1]:
                return True
    return False


@entry()
def self_loops(ptr: Array, indptr: Array, indices: Array) -> Array:
    """Return the number of self loops of each graph, (graphs,) int64."""
    found = np.zeros(len(ptr) - 1, np.int64)
    for graph in range(len(ptr) - 1):
        for row in range(ptr[graph], ptr[graph + 1]):
            for edge in range(indptr[row], indptr[row + 1]):
                if indices[edge] >= row:  # neighbours ascend
                    found[graph] += indices[edge] == row
                    break
    return found


@entry()
def _structures(
    ptr: Array,
    indptr: Array,
    indices: Array,
    weights: Array,
    sums: Array,
    lanes: Array,
) -> Array:
    found = np.empty((len(ptr) - 1, 3), np.uint64)
    one_weight = uint64(0x3FF0000000000000)  # the bits of 1.0
    for graph in range(len(ptr) - 1):
        start, stop = ptr[graph], ptr[graph + 1]
        one, two = uint64(0), uint64(0)
        for row in range(start, stop):
            for edge in range(indptr[row], indptr[row + 1]):
                ends = uint64(row - start) << uint64(32) | uint64(indices[edge] - start)
                first, second = _mix(ends ^ lanes[0]), _mix(ends ^ lanes[1])
                weight = one_weight
                if len(weights) > 0 and weights[edge] != weight:
                    weight = weights[edge]
                    first, second = _mix(first ^ weight), _mix(second ^ weight)
                if len(sums) > 0 and sums[edge] != weight:
                    first, second = _mix(first ^ sums[edge]), _mix(second ^ sums[edge])
                one, two = one + first, two + second
        found[graph, 0] = _mix(one ^ uint64(stop - start))
        found[graph, 1] = _mix(two ^ uint64(stop - start))
        found[graph, 2] = stop - start
    return found


@njit(inline="always")
def _mix(value: Any) -> Any:
    value = (value ^ value >> uint64(30)) * uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> uint64(27)) * uint64(0x94D049BB133111EB)
    return value ^ value >> uint64(31)
