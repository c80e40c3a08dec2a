"""Steps of community detection in Numba; meaning as in naive/communities.py, to the last bit."""

from __future__ import annotations

import numpy as np
from numba import int64

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.kernels.community_rules import LEAST, Adjacency
from penstock.kernels.compiled import entry


def aggregate(matrix: Adjacency, labels: Array) -> tuple[Array, Array, Array]:
    """Return the rows of the matrix in which nodes with one label, 0, 1, ..., are one node."""
    members = np.argsort(labels, kind="stable")
    starts = offsets_of(np.bincount(labels))
    edges = len(matrix.indices)
    ends, values = np.empty(edges, matrix.indices.dtype), np.empty(edges)
    rows = np.zeros(len(starts), np.int64)
    _aggregate(matrix, labels, members, starts, rows, ends, values)
    return rows, ends[: rows[-1]].copy(), values[: rows[-1]].copy()


@entry("labels")
def move(matrix: Adjacency, order: Array, labels: Array, factor: float) -> int:
    """Move nodes to the community of the largest gain until none gains; return their number."""
    nodes = len(labels)
    indptr, indices, weights, strength = matrix
    totals, sizes = np.zeros(nodes), np.zeros(nodes, np.int64)
    for node in range(nodes):
        totals[labels[node]] += strength[node]
        sizes[labels[node]] += 1
    unused, free = np.empty(nodes, np.int64), 0
    for label in range(nodes):
        if sizes[label] == 0:
            unused[free] = label
            free += 1
    queue, waits = order.copy(), np.ones(nodes, np.bool_)
    begin, waiting, moved = 0, nodes, 0
    to, met = np.zeros(nodes), np.zeros(nodes, np.bool_)
    found = np.empty(nodes, np.int64)
    while waiting > 0:
        node = queue[begin]
        begin = begin + 1 if begin + 1 < nodes else 0
        waiting -= 1
        waits[node] = False
        here, count = labels[node], 0
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if other == node:
                continue
            label = labels[other]
            if not met[label]:
                met[label] = True
                found[count] = label
                count += 1
            to[label] += weights[edge]
        totals[here] -= strength[node]
        best, most = here, to[here] - factor * strength[node] * totals[here]
        least = LEAST * strength[node]
        for i in range(count):
            label = found[i]
            gain = to[label] - factor * strength[node] * totals[label]
            if gain > most + least:
                best, most = label, gain
            to[label], met[label] = 0.0, False
        if most < -least:
            free -= 1
            best = unused[free]
        totals[best] += strength[node]
        if best == here:
            continue
        sizes[here] -= 1
        sizes[best] += 1
        if sizes[here] == 0:
            unused[free] = here
            free += 1
        labels[node] = best
        moved += 1
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if labels[other] != best and not waits[other]:
                waits[other] = True
                end = begin + waiting
                queue[end if end < nodes else end - nodes] = other
                waiting += 1
    return moved


@entry()
def refine(matrix: Adjacency, order: Array, labels: Array, factor: float) -> Array:
    """Return finer communities: from single nodes, merged within each community if both gain."""
    nodes = len(labels)
    indptr, indices, weights, strength = matrix
    totals, whole = strength.copy(), np.zeros(nodes)
    finer, alone = np.arange(nodes), np.ones(nodes, np.bool_)
    outward = np.zeros(nodes)
    for node in range(nodes):
        whole[labels[node]] += strength[node]
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if other != node and labels[other] == labels[node]:
                outward[node] += weights[edge]
    to, met = np.zeros(nodes), np.zeros(nodes, np.bool_)
    found = np.empty(nodes, np.int64)
    for node in order:
        rest = whole[labels[node]]
        if not alone[node] or outward[node] < factor * strength[node] * (rest - strength[node]):
            continue
        count = 0
        for edge in range(indptr[node], indptr[node + 1]):
            other = int64(indices[edge])
            if other == node or labels[other] != labels[node]:
                continue
            label = finer[other]
            if not met[label]:
                met[label] = True
                found[count] = label
                count += 1
            to[label] += weights[edge]
        best, most = node, LEAST * strength[node]
        for i in range(count):
            label = found[i]
            gain = to[label] - factor * strength[node] * totals[label]
            fits = outward[label] >= factor * totals[label] * (rest - totals[label])
            if label != node and fits and gain > most:
                best, most = label, gain
        if best != node:
            finer[node] = best
            alone[node] = alone[best] = False
            totals[best] += strength[node]
            outward[best] += outward[node] - 2 * to[best]
        for i in range(count):
            to[found[i]], met[found[i]] = 0.0, False
    return finer


@entry("rows", "ends", "values")
def _aggregate(
    matrix: Adjacency,
    labels: Array,
    members: Array,
    starts: Array,
    rows: Array,
    ends: Array,
    values: Array,
) -> None:
    indptr, indices, weights, _ = matrix
    count = len(starts) - 1
    place = np.full(count, -1, np.int64)  # of a label in the row
    at = 0
    for label in range(count):
        begin = at
        for i in range(starts[label], starts[label + 1]):
            node = members[i]
            for edge in range(indptr[node], indptr[node + 1]):
                other = labels[int64(indices[edge])]
                if place[other] < 0:
                    place[other] = at
                    ends[at], values[at] = other, 0.0
                    at += 1
                values[place[other]] += weights[edge]
        for edge in range(begin, at):
            place[int64(ends[edge])] = -1
        rows[label + 1] = at
