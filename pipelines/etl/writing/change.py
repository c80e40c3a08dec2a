"""Rows of yesterday's graph without some edges and with others.

Each edge to remove or to add is looked up in its row; then each column is copied once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.kernels import kernel
from penstock.pipelines.etl.writing.merge import Merging

_PLAIN = 1 << 16  # up to this many edges, NumPy is faster than loading Numba


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
    which, removed = _pairs(*_same(base, gone))
    which, removed = which[keep[removed]], removed[keep[removed]]
    missing = np.ones(gone.edges, bool)
    missing[which] = False
    keep[removed] = False

    first, place = _same(base, added)
    fresh = np.ones(added.edges, bool)
    columns: dict[str, Any] = {n: a for n, a in base.arrays() if n != "indptr"}
    merged = 0
    if merging.how != "keep":
        same = first, place
        if merging.times:
            same = _same(base, replace(added, times=None))
        which, at = _pairs(*same)
        which, at = which[keep[at]], at[keep[at]]
        fresh[which], merged = False, len(at)
        for name in ("weights", "times") if merged else ():
            if name in columns:
                columns[name] = np.array(columns[name])
                _merge(columns[name], at, getattr(added, name)[which], name, merging)
    without = np.flatnonzero(~keep)
    # Among the edges that stay, and then among all.
    place = place[fresh]
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
    """Return where the edges of ``base`` that are the same as each of ``other`` begin and end.

    Relations and times count if both have them.
    """
    both = [
        (ours, theirs)
        for ours, theirs in (
            (base.indices, other.indices),
            (base.relations, other.relations),
            (base.times, other.times),
        )
        if ours is not None and theirs is not None
    ]
    ours, theirs = zip(*both, strict=True)
    found = kernel("same_edges", other.indices, plain=_PLAIN)
    first, last = found.same_edges(base.indptr, ours, other.indptr, theirs)
    return first, last


def _pairs(first: Array, last: Array) -> tuple[Array, Array]:
    """Return all pairs of another edge and one that is the same, by position."""
    counts = last - first
    which = np.repeat(np.arange(len(counts)), counts)
    inner = np.arange(len(which)) - np.repeat(offsets_of(counts)[:-1], counts)
    return which, first[which] + inner


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
