"""Better parts by moving one node at a time, in Numba; meaning as in naive/refine.py.

Sequential, so that the same seed gives the same parts on any number of threads.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.sort import stable_order


@njit(cache=True, nogil=True)
def balance(
    indptr: Array, indices: Array, load: Array, parts: Array, k: int, bound: int, passes: int
) -> int:
    """Move nodes out of parts above ``bound``, in order of least cost in cut edges."""
    loads, counts = _sums(load, parts, k)
    links = np.zeros(k, np.int64)
    nodes = np.empty(len(parts), np.int64)
    costs = np.empty(len(parts), np.float64)
    moved = 0
    for _ in range(passes):
        found = 0
        for v in range(len(parts)):
            if loads[parts[v]] > bound and load[v] > 0:
                _count(v, indptr, indices, parts, links)
                most = 0
                for p in range(k):
                    if p != parts[v] and links[p] > most:
                        most = links[p]
                nodes[found] = v
                costs[found] = (links[parts[v]] - most) / load[v]
                _uncount(v, indptr, indices, parts, links)
                found += 1
        before = moved
        for at in stable_order(costs[:found]):
            v = nodes[at]
            if loads[parts[v]] <= bound or counts[parts[v]] == 1:
                continue
            _count(v, indptr, indices, parts, links)
            target = _best(v, links, load, parts, loads, bound)
            _uncount(v, indptr, indices, parts, links)
            if target >= 0:
                _move(v, target, load, parts, loads, counts)
                moved += 1
        if moved == before:
            break
    return moved


@njit(cache=True, nogil=True)
def refine(
    indptr: Array, indices: Array, load: Array, parts: Array, k: int, bound: int, passes: int
) -> int:
    """Move each node to the part of most of its neighbours if that cuts fewer edges."""
    loads, counts = _sums(load, parts, k)
    links = np.zeros(k, np.int64)
    moved = 0
    for _ in range(passes):
        before = moved
        for v in range(len(parts)):
            own = parts[v]
            # Most nodes have all their neighbours in their part: skip them cheaply.
            inside = True
            for edge in range(indptr[v], indptr[v + 1]):
                if parts[indices[edge]] != own:
                    inside = False
                    break
            if inside or counts[own] == 1:
                continue
            _count(v, indptr, indices, parts, links)
            target = _best(v, links, load, parts, loads, bound)
            gain = links[target] - links[own] if target >= 0 else -1
            _uncount(v, indptr, indices, parts, links)
            if gain > 0 or (gain == 0 and loads[target] + load[v] < loads[own]):
                _move(v, target, load, parts, loads, counts)
                moved += 1
        if moved == before:
            break
    return moved


@njit(cache=True)
def _sums(load: Array, parts: Array, k: int) -> tuple[Array, Array]:
    loads, counts = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for v in range(len(parts)):
        loads[parts[v]] += load[v]
        counts[parts[v]] += 1
    return loads, counts


@njit(cache=True, inline="always")
def _count(v: int, indptr: Array, indices: Array, parts: Array, links: Array) -> None:
    for edge in range(indptr[v], indptr[v + 1]):
        links[parts[indices[edge]]] += 1


@njit(cache=True, inline="always")
def _uncount(v: int, indptr: Array, indices: Array, parts: Array, links: Array) -> None:
    # Cheaper than clearing all k if a node has few neighbours.
    for edge in range(indptr[v], indptr[v + 1]):
        links[parts[indices[edge]]] = 0


@njit(cache=True)
def _best(v: int, links: Array, load: Array, parts: Array, loads: Array, bound: int) -> int:
    target = -1
    for p in range(len(loads)):
        if p == parts[v] or loads[p] + load[v] > bound:
            continue
        better = target < 0 or links[p] > links[target]
        if better or (links[p] == links[target] and loads[p] < loads[target]):
            target = p
    return target


@njit(cache=True, inline="always")
def _move(v: int, target: int, load: Array, parts: Array, loads: Array, counts: Array) -> None:
    loads[parts[v]] -= load[v]
    counts[parts[v]] -= 1
    loads[target] += load[v]
    counts[target] += 1
    parts[v] = target
