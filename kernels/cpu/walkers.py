"""Walks on one part of a graph in Numba; names and meaning are naive/walkers.py's."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer
from penstock.kernels.cpu.walk.arrays import arrays_of, frozen, numbers_of, pointers
from penstock.kernels.cpu.walk.reservoir import BLOCK, take_by_reservoir, weigher
from penstock.kernels.cpu.walk.step import (
    candidate_range,
    decide_exactly,
    draw,
    ending,
    in_row,
    propose,
    scaled,
    verdict_of_coin,
    verdict_of_row,
)
from penstock.kernels.walk_rules import NEVER, TRIALS, Owned, Sampler, Walkers, WalkGraph, WalkRules
from penstock.kernels.walkers import NAMES

_NEVER = np.int64(NEVER)
_HERE = np.int32(-2)  # bound for nowhere else
_LANES = 32  # walkers that go on at once: each waits for memory, and many wait together
_ITS, _ALIAS, _TRIALS = int(Sampler.ITS), int(Sampler.ALIAS), TRIALS
_ROUND = 2.0**32


class _Place(NamedTuple):
    """What ``Owned`` says, for a kernel."""

    rank: Any
    assignment: Array
    local: Array


class _Columns(NamedTuple):
    """The arrays of walkers, for a kernel."""

    walk: Array
    slot: Array
    start: Array
    node: Array
    previous: Array
    candidate: Array
    coin: Array
    step: Array
    draw: Array
    now: Array
    then: Array
    to: Array


def advance(
    rows: WalkGraph, rules: WalkRules, owned: Owned, walkers: Walkers, paths: Array
) -> None:
    """Let each walker go on as far as it can on this part; change walkers and paths in place."""
    place = _Place(
        np.int32(owned.rank), frozen(owned.assignment, np.int32), frozen(owned.local, None)
    )
    columns = _Columns(**{name: getattr(walkers, name) for name in NAMES})
    assert all(array.flags.c_contiguous for array in (*columns, paths))  # pointers know no strides
    arguments = arrays_of(rows, rules), numbers_of(rows, rules), place, columns, paths
    if rules.sampler != Sampler.RESERVOIR:
        _advance(*arguments)
    elif rules.expression is None:
        _advance_by_reservoir(*arguments, None)
    else:
        _not_kept()(*arguments, weigher(rules.expression))


@cache
def _not_kept() -> Any:
    # A function has no name that holds in another process, so such kernels are not kept on disk.
    return njit(nogil=True, error_model="numpy")(_advance_by_reservoir.py_func)


# Pointers, since Numba counts references to arrays whenever one is passed on.
@njit(cache=True, inline="always")
def _place(owned: Any) -> Any:
    return _Place(owned.rank, pointer(owned.assignment), pointer(owned.local))


@njit(cache=True, inline="always")
def _walkers(columns: Any) -> Any:
    return _Columns(
        pointer(columns.walk),
        pointer(columns.slot),
        pointer(columns.start),
        pointer(columns.node),
        pointer(columns.previous),
        pointer(columns.candidate),
        pointer(columns.coin),
        pointer(columns.step),
        pointer(columns.draw),
        pointer(columns.now),
        pointer(columns.then),
        pointer(columns.to),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(arrays: Any, numbers: Any, owned: Any, columns: Any, table: Array) -> None:
    at, place, walkers = pointers(arrays), _place(owned), _walkers(columns)
    paths, count = pointer(table), len(columns.to)
    alias = numbers.weighted and numbers.sampler == _ALIAS
    its = numbers.weighted and numbers.sampler == _ITS
    who, row, low, high, edge, tries = np.zeros((6, _LANES), np.int64)
    wide, coin, word2 = np.zeros((3, _LANES), np.uint64)
    bound, share = np.zeros((2, _LANES), np.float64)
    target = np.zeros(_LANES, np.int64)
    ready = np.zeros(_LANES, np.bool_)  # the candidates of its step are known
    live, last = 0, -1
    while live < _LANES:
        last = _next_here(walkers.to, count, last)
        if last == count:
            break
        who[live] = last
        live += 1

    while live > 0:
        # Candidates are judged, steps begin; who cannot go on here makes room for the next.
        lane = 0
        while lane < live:
            i, to = who[lane], _HERE
            if walkers.candidate[i] >= 0:
                verdict, previous = 1, np.int64(walkers.previous[i])
                if numbers.second_order and previous >= 0:
                    candidate = np.int64(walkers.candidate[i])
                    verdict = _verdict(
                        at, numbers, place, previous, candidate, uint64(walkers.coin[i])
                    )
                if verdict == 1:
                    walkers.previous[i], walkers.now[i] = walkers.node[i], walkers.then[i]
                    _write(numbers, walkers, i, walkers.candidate[i], paths)
                    ready[lane] = False
                if verdict < 0:
                    to = place.assignment[previous]
                else:
                    walkers.candidate[i] = -1
            if to == _HERE and not ready[lane]:
                if _ended(numbers, walkers, i, paths):
                    to = np.int32(-1)
                else:
                    node, step = np.int64(walkers.node[i]), np.int64(walkers.step[i])
                    to = place.assignment[node]
                    if to == place.rank:
                        to, ready[lane], tries[lane] = _HERE, True, 0
                        row[lane], low[lane], high[lane] = candidate_range(
                            at, numbers, np.int64(place.local[node]), step, walkers.now[i]
                        )
                        if numbers.weighted and not its:
                            bound[lane] = at.bounds[row[lane]]
                            if bound[lane] == 0.0:
                                high[lane] = low[lane]
            if to == _HERE and low[lane] == high[lane]:
                to = np.int32(-1)
            if to == _HERE:
                lane += 1
                continue
            walkers.to[i] = to
            if last < count:
                last = _next_here(walkers.to, count, last)
            if last < count:
                who[lane], ready[lane] = last, False
            else:
                live -= 1
                who[lane], ready[lane], tries[lane] = who[live], ready[live], tries[live]
                row[lane], low[lane], high[lane] = row[live], low[live], high[live]
                bound[lane] = bound[live]

        for lane in range(live):
            i = who[lane]
            wide[lane], word2[lane], coin[lane] = draw(
                numbers, walkers.walk[i], np.int64(walkers.step[i]), np.int64(walkers.draw[i])
            )
        for lane in range(live):
            edge[lane] = low[lane] + scaled(wide[lane], high[lane] - low[lane])
            target[lane] = at.indices[edge[lane]]
            if alias:
                share[lane] = at.chance[edge[lane]]
            elif numbers.weighted:
                share[lane] = at.weights[edge[lane]]

        for lane in range(live):
            i, chosen = who[lane], edge[lane]
            step, n = np.int64(walkers.step[i]), np.int64(walkers.draw[i])
            walkers.draw[i] = n + 1
            if its:
                chosen, _, _ = propose(
                    at, numbers, row[lane], low[lane], high[lane], walkers.walk[i], step, n
                )
            elif alias:
                if np.float64(word2[lane]) >= share[lane] * _ROUND:
                    chosen = low[lane] + np.int64(at.other[chosen])
            elif numbers.weighted and np.float64(word2[lane]) * bound[lane] >= share[lane] * _ROUND:
                tries[lane] += 1
                if tries[lane] < _TRIALS:
                    continue
                chosen, coin[lane], walkers.draw[i] = decide_exactly(
                    at, numbers, bound[lane], low[lane], high[lane], walkers.walk[i], step, n + 1
                )
            tries[lane] = 0
            if chosen < 0:
                high[lane] = low[lane]  # nothing here has weight: the walk ends
                continue
            walkers.candidate[i] = target[lane] if chosen == edge[lane] else at.indices[chosen]
            walkers.coin[i] = coin[lane]
            if numbers.dated:
                walkers.then[i] = at.times[chosen]


@njit(cache=True, nogil=True, error_model="numpy")
def _advance_by_reservoir(
    arrays: Any, numbers: Any, owned: Any, columns: Any, table: Array, weigh: Any
) -> None:
    at, place, walkers = pointers(arrays), _place(owned), _walkers(columns)
    paths, count = pointer(table), len(columns.to)
    values, kept = np.empty(BLOCK), np.empty(BLOCK)
    i = _next_here(walkers.to, count, -1)
    while i < count:
        while not _ended(numbers, walkers, i, paths):
            node, previous = walkers.node[i], np.int64(walkers.previous[i])
            walkers.to[i] = place.assignment[node]
            if walkers.to[i] != place.rank:
                break
            here, step, now = np.int64(place.local[node]), walkers.step[i], walkers.now[i]
            edge = take_by_reservoir(
                at, numbers, here, previous, step, now, walkers.walk[i], values, kept, weigh
            )
            if edge < 0:
                walkers.to[i] = -1
                break
            walkers.previous[i] = node
            if numbers.dated:
                walkers.now[i] = at.times[edge]
            _write(numbers, walkers, i, at.indices[edge], paths)
        else:
            walkers.to[i] = -1
        i = _next_here(walkers.to, count, i)


@njit(cache=True, nogil=True, error_model="numpy")
def _next_here(to: Any, count: Any, last: Any) -> Any:
    """Return the next walker that has not ended, or how many walkers there are."""
    last += 1
    while last < count and to[last] < 0:
        last += 1
    return last


@njit(cache=True, nogil=True, error_model="numpy")
def _ended(numbers: Any, walkers: Any, i: Any, paths: Any) -> Any:
    """Return whether there is no other step; the walker begins again where the draws say so."""
    while walkers.step[i] < numbers.length:
        if walkers.draw[i] > 0:
            return False  # in the middle of a step: it was asked before
        end = ending(numbers, walkers.walk[i], np.int64(walkers.step[i]))
        if end != 2:
            return end == 1
        walkers.previous[i], walkers.now[i] = -1, _NEVER
        _write(numbers, walkers, i, walkers.start[i], paths)
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _write(numbers: Any, walkers: Any, i: Any, node: Any, paths: Any) -> None:
    paths[walkers.slot[i] * numbers.length + walkers.step[i]] = walkers.node[i] = node
    walkers.step[i] += 1
    walkers.draw[i] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _verdict(at: Any, numbers: Any, place: Any, previous: Any, candidate: Any, coin: Any) -> Any:
    """Return 1 or 0, taken or not; -1 where another part must say."""
    verdict = verdict_of_coin(numbers, coin, candidate == previous)
    if verdict >= 0:
        return verdict
    indptr, indices = at.near_indptr, at.near_indices
    here = place.assignment[previous] == place.rank
    there = numbers.symmetric and place.assignment[candidate] == place.rank
    if not here and not there:
        return -1
    row, target = np.int64(place.local[previous]), candidate
    other = np.int64(place.local[candidate])
    if not here or (there and indptr[other + 1] - indptr[other] < indptr[row + 1] - indptr[row]):
        row, target = other, previous
    return verdict_of_row(numbers, coin, in_row(indptr, indices, row, target))
