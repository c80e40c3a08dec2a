"""Preparation of walks in Numba: rows in another order, and their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.walk.arrays import frozen
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

_SHORT = 32  # rows up to this length are sorted by insertion


def check_weights(indptr: Array, weights: Array) -> tuple[Array, int, int]:
    """Return the largest weight of each row, the first bad edge and the first row of only zeros."""
    bounds = np.zeros(len(indptr) - 1, np.float32)
    bad, zero = _check_weights(frozen(indptr, np.int64), frozen(weights, np.float32), bounds)
    return bounds, int(bad), int(zero)


@njit(cache=True, nogil=True)
def _check_weights(indptr: Array, weights: Array, bounds: Array) -> tuple[int, int]:
    bad = zero = -1
    for row in range(len(bounds)):
        largest = np.float32(0)
        for edge in range(indptr[row], indptr[row + 1]):
            weight = weights[edge]
            if not (weight >= 0 and weight < np.inf) and bad < 0:
                bad = edge
            if weight > largest:
                largest = weight
        bounds[row] = largest
        if largest == 0 and indptr[row + 1] > indptr[row] and zero < 0:
            zero = row
    return bad, zero


# -- rows in another order -------------------------------------------------------------------------


def rows_by_relation(rows: WalkGraph, wanted: Array) -> WalkGraph:
    """Return rows with one group per distinct relation of ``wanted``, and no other edges.

    Edges of a group stay in their order; the columns are written one by one, to save memory.
    """
    old = frozen(rows.indptr, np.int64)
    relations = frozen(rows.relations, np.int32)
    known = wanted <= relations.max(initial=-1)  # others have no edges: the table stays small
    group_of = np.full(wanted[known].max(initial=-1) + 2, -1, np.int32)
    group_of[wanted[known]] = np.flatnonzero(known)
    indptr = np.zeros((len(old) - 1) * len(wanted) + 1, np.int64)
    _count_groups(old, relations, group_of, len(wanted), indptr)
    np.cumsum(indptr, out=indptr)
    columns: dict[str, Any] = {}
    for name, column in _columns(rows).items():
        columns[name] = np.empty(indptr[-1], column.dtype)
        moved = frozen(column, column.dtype), columns[name]
        _scatter(old, relations, group_of, len(wanted), indptr, *moved)
    return replace(rows, indptr=indptr, groups=len(wanted), neighbours=rows.adjacency, **columns)


@njit(cache=True)
def _group(relation: int, group_of: Array) -> int:
    return int(group_of[relation]) if 0 <= relation < len(group_of) else -1


@njit(cache=True, nogil=True)
def _count_groups(
    old: Array, relations: Array, group_of: Array, groups: int, indptr: Array
) -> None:
    for row in range(len(old) - 1):
        for edge in range(old[row], old[row + 1]):
            group = _group(relations[edge], group_of)
            if group >= 0:
                indptr[row * groups + group + 1] += 1


@njit(cache=True, nogil=True)
def _scatter(
    old: Array,
    relations: Array,
    group_of: Array,
    groups: int,
    indptr: Array,
    column: Array,
    result: Array,
) -> None:
    places = np.empty(groups, np.int64)
    for row in range(len(old) - 1):
        for group in range(groups):
            places[group] = indptr[row * groups + group]
        for edge in range(old[row], old[row + 1]):
            group = _group(relations[edge], group_of)
            if group >= 0:
                result[places[group]] = column[edge]
                places[group] += 1


def rows_by_time(rows: WalkGraph) -> WalkGraph:
    """Return rows whose edges ascend in time; equal times keep their order."""
    indptr = frozen(rows.indptr, np.int64)
    order = np.empty(len(rows.times), np.uint32)
    _order_by_time(indptr, frozen(rows.times, np.int64), order)
    columns: dict[str, Any] = {}
    for name, column in _columns(rows).items():
        columns[name] = np.empty_like(column)
        _gather(indptr, order, frozen(column, column.dtype), columns[name])
    return replace(rows, neighbours=rows.adjacency, **columns)


@njit(cache=True, nogil=True)
def _order_by_time(indptr: Array, times: Array, order: Array) -> None:
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    merged = np.empty(longest, np.uint32)
    for row in range(len(indptr) - 1):
        low, high = indptr[row], indptr[row + 1]
        for first in range(0, high - low, _SHORT):
            _sort_by_insertion(times[low:high], order[low:high], first)
        width = _SHORT
        while width < high - low:
            for first in range(0, high - low, 2 * width):
                _merge(times[low:high], order[low:high], merged, first, width)
            width *= 2


@njit(cache=True)
def _sort_by_insertion(times: Array, order: Array, first: int) -> None:
    for k in range(first, min(first + _SHORT, len(times))):
        place, time = k, times[k]
        while place > first and times[np.int64(order[place - 1])] > time:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k


@njit(cache=True)
def _merge(times: Array, order: Array, merged: Array, first: int, width: int) -> None:
    middle, end = min(first + width, len(order)), min(first + 2 * width, len(order))
    left, right = first, middle
    for place in range(first, end):
        if right == end or (
            left < middle and times[np.int64(order[left])] <= times[np.int64(order[right])]
        ):
            merged[place] = order[left]
            left += 1
        else:
            merged[place] = order[right]
            right += 1
    for place in range(first, end):
        order[place] = merged[place]


@njit(cache=True, nogil=True)
def _gather(indptr: Array, order: Array, column: Array, result: Array) -> None:
    for row in range(len(indptr) - 1):
        low = indptr[row]
        for edge in range(low, indptr[row + 1]):
            result[edge] = column[low + np.int64(order[edge])]


def _columns(rows: WalkGraph) -> dict[str, Array]:
    names = ("indices", "weights", "relations", "times")
    return {name: column for name in names if (column := getattr(rows, name)) is not None}


# -- tables of the rows ----------------------------------------------------------------------------


def tables(rows: WalkGraph, rules: WalkRules) -> WalkGraph:
    """Return rows with the sampler's data."""
    if rows.weights is None:
        return rows
    bounds, _, _ = check_weights(rows.indptr, rows.weights)
    rows = replace(rows, bounds=bounds)
    if rules.sampler == Sampler.ITS:
        rows = replace(rows, prefix=prefix_sums(rows.indptr, rows.weights))
    if rules.sampler == Sampler.ALIAS:
        chance, other = alias_table(rows.indptr, rows.weights)
        rows = replace(rows, chance=chance, other=other)
    return rows


def prefix_sums(indptr: Array, weights: Array) -> Array:
    """Return the running sums of weights in each row: (edges,) float64."""
    prefix = np.empty(len(weights))
    _prefix_sums(frozen(indptr, np.int64), frozen(weights, np.float32), prefix)
    return prefix


@njit(cache=True, nogil=True)
def _prefix_sums(indptr: Array, weights: Array, prefix: Array) -> None:
    for row in range(len(indptr) - 1):
        total = 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            total += np.float64(weights[edge])
            prefix[edge] = total


def alias_table(indptr: Array, weights: Array) -> tuple[Array, Array]:
    """Return each slot's share for its own edge, and the place in the row of the other edge."""
    chance, other = np.ones(len(weights), np.float32), np.zeros(len(weights), np.int32)
    _alias_table(frozen(indptr, np.int64), frozen(weights, np.float32), chance, other)
    return chance, other


@njit(cache=True, nogil=True)
def _alias_table(indptr: Array, weights: Array, chance: Array, other: Array) -> None:
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    share = np.empty(longest, np.float64)
    waiting = np.empty(longest, np.int32)  # too small slots in front, the rest at the back
    for row in range(len(indptr) - 1):
        low, count = indptr[row], indptr[row + 1] - indptr[row]
        total, heaviest = 0.0, 0
        for k in range(count):
            total += np.float64(weights[low + k])
            if weights[low + k] > weights[low + heaviest]:
                heaviest = k
        if total == 0.0:
            continue
        small, large = 0, count
        for k in range(count):
            share[k] = np.float64(weights[low + k]) * count / total
        for k in range(count - 1, -1, -1):
            if share[k] >= 1.0:
                large -= 1
                waiting[large] = k
        for k in range(count):
            if share[k] < 1.0:
                waiting[small] = k
                small += 1
        while small > 0 and large < count:
            small -= 1
            taker, giver = waiting[small], waiting[large]
            chance[low + taker], other[low + taker] = share[taker], giver
            share[giver] -= 1.0 - share[taker]
            if share[giver] < 1.0:
                waiting[small] = giver
                small += 1
                large += 1
        for k in range(small):  # rounding remainders; an edge without weight is never taken
            slot = waiting[k]
            if weights[low + slot] == 0:
                chance[low + slot], other[low + slot] = 0.0, heaviest
