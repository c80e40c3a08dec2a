"""Better parts by moving one node at a time: first within the bound, then with fewer edges cut.

(indptr, indices) is the symmetric adjacency; ``parts`` changes in place. A move never empties a
part and never lifts a part above ``bound``.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def balance(
    indptr: Array, indices: Array, load: Array, parts: Array, k: int, bound: int, passes: int
) -> int:
    """Move nodes out of parts above ``bound``, in order of least cost in cut edges.

    A node costs the neighbours it leaves less those it joins, per unit of its load. Returns how
    many nodes moved.
    """
    loads, counts = _sums(load, parts, k)
    moved = 0
    for _ in range(passes):
        nodes = [v for v in range(len(parts)) if loads[parts[v]] > bound and load[v] > 0]
        links = [_links(v, indptr, indices, parts, k) for v in nodes]
        costs = [
            (found[parts[v]] - np.delete(found, parts[v]).max(initial=0)) / load[v]
            for v, found in zip(nodes, links, strict=True)
        ]
        before = moved
        for at in np.argsort(np.array(costs), kind="stable"):
            v = nodes[at]
            if loads[parts[v]] <= bound or counts[parts[v]] == 1:
                continue
            target = _best(v, _links(v, indptr, indices, parts, k), load, parts, loads, bound)
            if target >= 0:
                _move(v, target, load, parts, loads, counts)
                moved += 1
        if moved == before:
            break
    return moved


def refine(
    indptr: Array, indices: Array, load: Array, parts: Array, k: int, bound: int, passes: int
) -> int:
    """Move each node to the part of most of its neighbours if that cuts fewer edges.

    A move that keeps the cut is made if it balances the load. Returns how many
    nodes moved.
    """
    loads, counts = _sums(load, parts, k)
    moved = 0
    for _ in range(passes):
        before = moved
        for v in range(len(parts)):
            own = parts[v]
            links = _links(v, indptr, indices, parts, k)
            if counts[own] == 1 or links.sum() == links[own]:
                continue
            target = _best(v, links, load, parts, loads, bound)
            if target < 0:
                continue
            gain = links[target] - links[own]
            if gain > 0 or (gain == 0 and loads[target] + load[v] < loads[own]):
                _move(v, target, load, parts, loads, counts)
                moved += 1
        if moved == before:
            break
    return moved


def _sums(load: Array, parts: Array, k: int) -> tuple[Array, Array]:
    loads = np.zeros(k, np.int64)
    np.add.at(loads, parts, load)
    return loads, np.bincount(parts, minlength=k)


def _links(v: int, indptr: Array, indices: Array, parts: Array, k: int) -> Array:
    return np.bincount(parts[indices[indptr[v] : indptr[v + 1]]], minlength=k)


def _best(v: int, links: Array, load: Array, parts: Array, loads: Array, bound: int) -> int:
    others = [p for p in range(len(loads)) if p != parts[v] and loads[p] + load[v] <= bound]
    return min(others, key=lambda p: (-links[p], loads[p], p), default=-1)


def _move(v: int, target: int, load: Array, parts: Array, loads: Array, counts: Array) -> None:
    loads[parts[v]] -= load[v]
    counts[parts[v]] -= 1
    loads[target] += load[v]
    counts[target] += 1
    parts[v] = target
