"""Random walks in Numba; names and meaning are naive/walk.py's.

One thread makes walks and releases the GIL. It makes _LANES of them at once, each at its own step:
a single walk would wait for memory at every edge, many wait together.

A kernel is compiled for its arguments: if one is None, Numba omits the code behind ``if argument is
not None``. ``part`` is None for a whole graph, and the arguments from ``narrowed`` on are None if
the rules do not need them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.vector import moved, pointer, pointers
from penstock.kernels.cpu.walk.arrays import arrays_of, numbers_of
from penstock.kernels.cpu.walk.part import (
    ENDED,
    HERE,
    arrive,
    ask,
    judge,
    leave,
    part_of,
    part_pointers,
    place,
    row_of,
    slot_of,
)
from penstock.kernels.cpu.walk.reservoir import walk_by_reservoir
from penstock.kernels.cpu.walk.step import (
    candidate_range,
    decide_exactly,
    ending,
    propose_by_sums,
    scaled,
)
from penstock.kernels.cpu.walk.tables import (
    alias_table,
    check_weights,
    prefix_sums,
    rows_by_relation,
    rows_by_time,
    tables,
)
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import (
    NEVER,
    TRIALS,
    WALK_BITS,
    Owned,
    Sampler,
    Walkers,
    WalkGraph,
    WalkRules,
)

__all__ = [
    "advance",
    "alias_table",
    "check_weights",
    "prefix_sums",
    "rows_by_relation",
    "rows_by_time",
    "tables",
    "walk",
]

_LANES = 32
_STEP, _BITS, _TRIALS = int(Stream.WALK_STEP), WALK_BITS, TRIALS
_ITS, _ALIAS = int(Sampler.ITS), int(Sampler.ALIAS)
_NEVER = np.int64(NEVER)
_HALF, _ROUND = np.uint64(32), 2.0**32
_INTEGERS, _WORDS, _FLOATS = 13, 3, 2  # numbers per lane


def walk(rows: WalkGraph, rules: WalkRules, walks: Array, starts: Array) -> Array:
    """Return the nodes of each walk: (walks, length), like ``indices``, -1 beyond its end."""
    paths = np.full((len(walks), rules.length), -1, rows.indices.dtype)
    walks = np.ascontiguousarray(walks, np.int64)
    _go_on(rows, rules, walks, np.ascontiguousarray(starts, paths.dtype), paths, None)
    return paths


def advance(
    rows: WalkGraph, rules: WalkRules, owned: Owned, walkers: Walkers, paths: Array
) -> None:
    """Move each walker as far as possible on this part; change walkers and paths in place."""
    _go_on(rows, rules, walkers.walk, walkers.start, paths, part_of(owned, walkers))


def _go_on(
    rows: WalkGraph, rules: WalkRules, walks: Array, starts: Array, paths: Array, part: Any
) -> None:
    assert paths.flags.c_contiguous  # pointers have no strides
    arrays, numbers = arrays_of(rows, rules), numbers_of(rows, rules)
    arguments = arrays, numbers, walks, starts, paths, part
    if rules.sampler == Sampler.RESERVOIR:
        walk_by_reservoir(*arguments, rules.expression)
        return
    lanes = (  # made here: np.zeros compiles longer than a walk
        np.zeros(_INTEGERS * _LANES, np.int64),
        np.zeros(_WORDS * _LANES, np.uint64),
        np.zeros(_FLOATS * _LANES),
    )
    asked = (
        numbers.schema > 0 or numbers.dated,
        numbers.stop_below > 0 or numbers.restart_below > 0,
        numbers.weighted,
        numbers.weighted and numbers.sampler == Sampler.ITS,
        numbers.weighted and numbers.sampler == Sampler.ALIAS,
        numbers.second_order,
    )
    _walk(*arguments, lanes, *(True if each else None for each in asked))


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(
    arrays: Any,
    numbers: Any,
    walks: Array,
    starts: Array,
    paths: Array,
    part: Any,
    lanes: tuple[Array, Array, Array],
    narrowed: Any,
    ends: Any,
    weighted: Any,
    its: Any,
    alias: Any,
    second_order: Any,
) -> None:
    at, walkers, table = pointers(arrays), part_pointers(part), pointer(paths)
    integers, words, floats = pointer(lanes[0]), pointer(lanes[1]), pointer(lanes[2])
    who, node = integers, moved(integers, _LANES)  # who is -1 for an empty lane
    previous, now = moved(integers, 2 * _LANES), moved(integers, 3 * _LANES)
    step, which = moved(integers, 4 * _LANES), moved(integers, 5 * _LANES)
    row, low = moved(integers, 6 * _LANES), moved(integers, 7 * _LANES)
    high, edge = moved(integers, 8 * _LANES), moved(integers, 9 * _LANES)
    target, draws = moved(integers, 10 * _LANES), moved(integers, 11 * _LANES)
    tries = moved(integers, 12 * _LANES)
    wide, coin, word2 = words, moved(words, _LANES), moved(words, 2 * _LANES)
    bound, share = floats, moved(floats, _LANES)
    for lane in range(_LANES):
        who[lane], step[lane] = -1, numbers.length
    begun, live = 0, _LANES

    while live > 0:
        # At the start of a step, its candidates; if a walker cannot continue, the next walker.
        lane = 0
        while lane < live:
            if draws[lane] > 0:
                lane += 1
                continue
            ended, goes = step[lane] == numbers.length, HERE
            if not ended:
                walk, start = walks[who[lane]], starts[who[lane]]
                if ends is not None:
                    end = ending(numbers, walk, step[lane])
                    if end == 2:
                        node[lane], previous[lane], now[lane] = start, -1, _NEVER
                        table[slot_of(walkers, who[lane]) * numbers.length + step[lane]] = start
                        step[lane] += 1
                        continue
                    ended = end == 1
                goes = place(walkers, node[lane])
                if goes == HERE:
                    row[lane] = row_of(walkers, node[lane])
                    low[lane], high[lane] = at.indptr[row[lane]], at.indptr[row[lane] + 1]
                    if narrowed is not None:
                        row[lane], low[lane], high[lane] = candidate_range(
                            at, numbers, row[lane], step[lane], now[lane]
                        )
                    ended = ended or low[lane] == high[lane]
                    if weighted is not None and its is None:
                        bound[lane] = at.bounds[row[lane]]
                        ended = ended or bound[lane] == 0.0
            if goes == HERE and not ended:
                which[lane], tries[lane] = walk | step[lane] << _BITS, 0
                if part is not None:
                    draws[lane] = -draws[lane]
                lane += 1
                continue
            if part is not None:
                leave(
                    walkers,
                    who[lane],
                    node[lane],
                    previous[lane],
                    step[lane],
                    -draws[lane],
                    now[lane],
                    ENDED if ended else goes,
                )
            if begun < len(walks):
                who[lane] = begun
                node[lane], previous[lane], step[lane], draws[lane], now[lane] = arrive(
                    at, numbers, walkers, begun, starts[begun], table, second_order
                )
                begun += 1
            else:
                live -= 1
                bound[lane] = bound[live]
                for k in range(_INTEGERS):
                    integers[k * _LANES + lane] = integers[k * _LANES + live]

        for lane in range(live):
            a, b, c, d = philox4x32(
                numbers.seed, uint64(_STEP), uint64(which[lane]), uint64(draws[lane])
            )
            wide[lane], word2[lane], coin[lane] = uint64(b) << _HALF | uint64(a), c, d
        for lane in range(live):
            edge[lane] = low[lane] + scaled(wide[lane], high[lane] - low[lane])
            target[lane] = at.indices[edge[lane]]
            if alias is not None:
                share[lane] = at.chance[edge[lane]]
            elif weighted is not None:
                share[lane] = at.weights[edge[lane]]

        for lane in range(live):
            draws[lane] += 1
            chosen = edge[lane]
            number = walks[who[lane]]
            if its is not None:
                chosen, coin[lane] = propose_by_sums(
                    at,
                    numbers,
                    row[lane],
                    low[lane],
                    high[lane],
                    number,
                    step[lane],
                    draws[lane] - 1,
                )
            elif alias is not None:
                if np.float64(word2[lane]) >= share[lane] * _ROUND:
                    chosen = low[lane] + np.int64(at.other[chosen])
            elif (
                weighted is not None
                and np.float64(word2[lane]) * bound[lane] >= share[lane] * _ROUND
            ):
                tries[lane] += 1
                if tries[lane] < _TRIALS:
                    continue
                chosen, coin[lane], draws[lane] = decide_exactly(
                    at, numbers, bound[lane], low[lane], high[lane], number, step[lane], draws[lane]
                )
            if chosen < 0:  # all weights are 0
                step[lane], draws[lane] = numbers.length, 0
                continue
            target[lane] = at.indices[chosen]
            if second_order is not None and previous[lane] >= 0:
                tries[lane] = 0
                verdict = judge(at, numbers, walkers, previous[lane], target[lane], coin[lane])
                if part is not None and verdict < 0:
                    then = at.times[chosen] if numbers.dated else _NEVER
                    ask(walkers, who[lane], target[lane], coin[lane], then)
                    leave(
                        walkers,
                        who[lane],
                        node[lane],
                        previous[lane],
                        step[lane],
                        draws[lane],
                        now[lane],
                        place(walkers, previous[lane]),
                    )
                    who[lane], step[lane], draws[lane] = -1, numbers.length, 0
                if verdict < 1:
                    continue
            previous[lane], node[lane] = node[lane], target[lane]
            if numbers.dated:
                now[lane] = at.times[chosen]
            table[slot_of(walkers, who[lane]) * numbers.length + step[lane]] = target[lane]
            step[lane] += 1
            draws[lane] = 0
