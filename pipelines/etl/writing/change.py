"""Rows of yesterday's graph without some edges and with others.

Each edge to remove or to add is looked up in its row; then each column is copied once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.pipelines.etl.writing.merge import Merging


def change_rows(
    base: CSR, gone: CSR, added: CSR, merging: Merging, since: float | None
) -> tuple[CSR, dict[str, Any]]:
    """Return ``base`` without edges before ``since`` and those of ``gone``, and then with those of
    ``added``.

    All three have the same rows, sorted by target, relation and time. Edges that are the same merge
    by the rule of the graph, the base's first.

    ->  also how many edges are older, were removed, do not exist, were added, and (of an undirected
        edge each direction) merged with one of the base
    """
    both_ways = merging.directions is not None
    keep = np.ones(base.edges, bool)
    if since is not None and base.times is not None:
        keep = np.asarray(base.times) >= since
    old = np.flatnonzero(~keep)
    which, removed = _same(base, gone)
    which, removed = which[keep[removed]], removed[keep[removed]]
    missing = np.ones(gone.edges, bool)
    missing[which] = False
    keep[removed] = False

    by = replace(added, times=None) if merging.times else added
    fresh = np.ones(added.edges, bool)
    columns: dict[str, Any] = {n: a for n, a in base.arrays() if n != "indptr"}
    merged = 0
    if merging.how != "keep":
        which, at = _same(base, by)
        which, at = which[keep[at]], at[keep[at]]
        fresh[which], merged = False, len(at)
        for name in ("weights", "times") if merged else ():
            if name in columns:
                columns[name] = np.array(columns[name])
                _merge(columns[name], at, getattr(added, name)[which], name, merging)
    without = np.flatnonzero(~keep)
    # Among the edges that stay, and then among all.
    place = _bound(base, added, after=True)[fresh]
    place += np.arange(len(place)) - np.searchsorted(without, place)
    stays = np.ones(base.edges - len(without) + len(place), bool)
    stays[place] = False
    for name, array in columns.items():
        new = getattr(added, name)
        column = np.empty(len(stays), new.dtype if name == "indices" else array.dtype)
        column[stays], column[place] = array[keep] if len(without) else array, new[fresh]
        columns[name] = column
    new = np.flatnonzero(fresh)
    degrees = base.degrees()
    degrees += np.bincount(_rows(added, new), minlength=base.rows)
    degrees -= np.bincount(_rows(base, without), minlength=base.rows)
    counts = {
        "left": _edges(base, old, both_ways=both_ways),
        "removed": _edges(base, removed, both_ways=both_ways),
        "not_removed": _edges(gone, np.flatnonzero(missing), both_ways=both_ways),
        "added": _edges(added, new, both_ways=both_ways),
        "merged": merged,
    }
    return replace(base, indptr=offsets_of(degrees), **columns), counts


def _same(base: CSR, other: CSR) -> tuple[Array, Array]:
    """Return all pairs of an edge of ``other`` and the same one of ``base``, by position."""
    first = _bound(base, other, after=False)
    counts = _bound(base, other, after=True) - first
    which = np.repeat(np.arange(other.edges), counts)
    inner = np.arange(len(which)) - np.repeat(offsets_of(counts)[:-1], counts)
    return which, first[which] + inner


def _bound(base: CSR, other: CSR, *, after: bool) -> Array:
    """Return the place of each edge of ``other`` in its row of ``base``: (edges,) int64.

    ``after`` edges that are the same in all columns of both, or before them.
    """
    rows = _rows(other, np.arange(other.edges))
    low, high = base.indptr[rows], base.indptr[rows + 1]
    pairs = [
        (base.indices, other.indices),
        (base.relations, other.relations),
        (base.times, other.times),
    ]
    left = np.flatnonzero(low < high)
    while len(left):
        middle = (low[left] + high[left]) // 2
        lower = np.full(len(left), after)
        for ours, theirs in reversed(pairs):
            if ours is not None and theirs is not None:
                mine, wanted = ours[middle], theirs[left]
                lower = (mine < wanted) | ((mine == wanted) & lower)
        low[left] = np.where(lower, middle + 1, low[left])
        high[left] = np.where(lower, high[left], middle)
        left = left[low[left] < high[left]]
    return low


def _merge(values: Array, at: Array, new: Array, name: str, merging: Merging) -> None:
    """Merge new weights or times into those of the base, in place; ``at`` has no place twice."""
    how = merging.how
    if name == "times":
        how = "max" if merging.times and how != "first" else "first"
    if how == "sum":
        values[at] += new
    elif how != "first":
        values[at] = (np.maximum if how == "max" else np.minimum)(values[at], new)


def _rows(csr: CSR, edges: Array) -> Array:
    """Return the local row of each edge."""
    return np.searchsorted(csr.indptr, edges, side="right") - 1


def _edges(csr: CSR, edges: Array, *, both_ways: bool) -> int:
    """Return how many edges these are; an undirected one counts in the row of its lower end."""
    if not both_ways:
        return len(edges)
    return int(np.count_nonzero(_rows(csr, edges) + csr.first_row <= csr.indices[edges]))
