"""The steps of ``community_rules.communities``, one node after another.

moved = move(matrix, order, labels, factor)         # labels change in place
finer = refine(matrix, order, labels, factor)
rows = aggregate(matrix, labels)

``factor`` is the resolution over the sum of all strengths: a node gains the weight of its edges to
a community, less ``factor`` times its strength and the community's.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.kernels.community_rules import LEAST, Adjacency


def move(matrix: Adjacency, order: Array, labels: Array, factor: float) -> int:
    """Move nodes to the community of the largest gain until none gains; return their number.

    A node that moves puts its neighbours elsewhere in the queue again. Labels are below ``nodes``.
    """
    indptr, indices, _, strength = matrix
    totals = np.bincount(labels, strength, minlength=len(labels))
    sizes = np.bincount(labels, minlength=len(labels))
    unused = [label for label in range(len(labels)) if sizes[label] == 0]
    queue, waits, moved = deque(order.tolist()), np.ones(len(labels), bool), 0
    while queue:
        node = queue.popleft()
        waits[node] = False
        here = int(labels[node])
        to = _to(node, matrix, labels)
        totals[here] -= strength[node]
        best, most = here, to.get(here, 0.0) - factor * strength[node] * totals[here]
        least = LEAST * strength[node]
        for label, weight in to.items():
            gain = weight - factor * strength[node] * totals[label]
            if gain > most + least:
                best, most = label, gain
        if most < -least:  # alone
            best = unused.pop()
        totals[best] += strength[node]
        if best == here:
            continue
        sizes[here] -= 1
        sizes[best] += 1
        if sizes[here] == 0:
            unused.append(here)
        labels[node] = best
        moved += 1
        for other in indices[indptr[node] : indptr[node + 1]].tolist():
            if labels[other] != best and not waits[other]:
                waits[other] = True
                queue.append(other)
    return moved


def refine(matrix: Adjacency, order: Array, labels: Array, factor: float) -> Array:
    """Return finer communities: from single nodes, merged within each community if both gain.

    A node or a community is merged only if it is well connected with the rest of its community.
    """
    nodes = len(labels)
    indptr, indices, weights, strength = matrix
    totals, whole = strength.copy(), np.bincount(labels, strength, minlength=nodes)
    finer, alone = np.arange(nodes), np.ones(nodes, bool)
    outward = np.zeros(nodes)  # weight of the edges to the rest of its community
    for node in range(nodes):
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if other != node and labels[other] == labels[node]:
                outward[node] += weights[edge]
    for node in order.tolist():
        rest = whole[labels[node]]
        if not alone[node] or outward[node] < factor * strength[node] * (rest - strength[node]):
            continue
        to = _to(node, matrix, finer, labels)
        best, most = node, LEAST * strength[node]
        for label, weight in to.items():
            gain = weight - factor * strength[node] * totals[label]
            fits = outward[label] >= factor * totals[label] * (rest - totals[label])
            if label != node and fits and gain > most:
                best, most = label, gain
        if best != node:
            finer[node] = best
            alone[node] = alone[best] = False
            totals[best] += strength[node]
            outward[best] += outward[node] - 2 * to[best]
    return finer


def aggregate(matrix: Adjacency, labels: Array) -> tuple[Array, Array, Array]:
    """Return the rows of the matrix in which nodes with one label, 0, 1, ..., are one node."""
    indptr, indices, weights, _ = matrix
    count = int(labels.max(initial=-1)) + 1
    rows: list[dict[int, float]] = [{} for _ in range(count)]
    for node in np.argsort(labels, kind="stable").tolist():
        row = rows[labels[node]]
        for edge in range(indptr[node], indptr[node + 1]):
            label = int(labels[indices[edge]])
            row[label] = row.get(label, 0.0) + weights[edge]
    ends = [label for row in rows for label in row]
    values = [weight for row in rows for weight in row.values()]
    starts = offsets_of(np.array([len(row) for row in rows], np.int64))
    return starts, np.array(ends, indices.dtype), np.array(values, np.float64)


def _to(
    node: int, matrix: Adjacency, labels: Array, within: Array | None = None
) -> dict[int, float]:
    """Return the weight of a node's edges by label, of nodes ``within`` the same community."""
    indptr, indices, weights, _ = matrix
    found: dict[int, float] = {}
    for edge in range(indptr[node], indptr[node + 1]):
        other = indices[edge]
        if other != node and (within is None or within[other] == within[node]):
            label = int(labels[other])
            found[label] = found.get(label, 0.0) + weights[edge]
    return found
