"""Random walks in Numba; names and meaning are naive/walk.py's.

One thread makes walks and releases the GIL. It makes _LANES of them at once, each at its own step:
a walk alone would wait for memory at every edge, many wait together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.cpu.walk.arrays import arrays_of, numbers_of, pointers
from penstock.kernels.cpu.walk.reservoir import reservoir_walks
from penstock.kernels.cpu.walk.step import (
    candidate_range,
    decide_exactly,
    ending,
    is_neighbour,
    propose,
    scaled,
    verdict_of_coin,
    verdict_of_row,
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
from penstock.kernels.walk_rules import NEVER, TRIALS, WALK_BITS, Sampler, WalkGraph, WalkRules

__all__ = [
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


def walk(rows: WalkGraph, rules: WalkRules, walks: Array, starts: Array) -> Array:
    """Return the nodes of each walk: (walks, length), like ``indices``, -1 beyond its end."""
    paths = np.full((len(walks), rules.length), -1, rows.indices.dtype)
    arguments = (
        arrays_of(rows, rules),
        numbers_of(rows, rules),
        np.ascontiguousarray(walks, np.int64),
        np.ascontiguousarray(starts, rows.indices.dtype),
        paths,
    )
    if rules.sampler == Sampler.RESERVOIR:
        reservoir_walks(*arguments, rules.expression)
    else:
        _walk(*arguments)
    return paths


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(arrays: Any, numbers: Any, walks: Array, starts: Array, paths: Array) -> None:
    at = pointers(arrays)
    slot, node, previous, step, now = np.zeros((5, _LANES), np.int64)
    row, low, high, edge, target = np.zeros((5, _LANES), np.int64)
    draws, tries = np.zeros((2, _LANES), np.int64)  # made for this step; since the last proposal
    wide, coin, word2, which = np.zeros((4, _LANES), np.uint64)
    bound, share = np.zeros((2, _LANES), np.float64)
    alias = numbers.weighted and numbers.sampler == _ALIAS
    its = numbers.weighted and numbers.sampler == _ITS
    begun = live = min(_LANES, len(walks))
    for lane in range(live):
        slot[lane], node[lane], previous[lane] = lane, starts[lane], -1
        step[lane], now[lane] = 1, _NEVER
        paths[lane, 0] = starts[lane]

    while live > 0:
        # Where a step begins: its candidates; where a walk has ended: the next walk.
        lane = 0
        while lane < live:
            if draws[lane] > 0:
                lane += 1
                continue
            ended = step[lane] == numbers.length
            if not ended:
                walk, start = walks[slot[lane]], starts[slot[lane]]
                end = ending(numbers, walk, step[lane])
                if end == 2:
                    node[lane], previous[lane], now[lane] = start, -1, _NEVER
                    paths[slot[lane], step[lane]] = start
                    step[lane] += 1
                    continue
                row[lane], low[lane], high[lane] = candidate_range(
                    at, numbers, node[lane], step[lane], now[lane]
                )
                ended = end == 1 or low[lane] == high[lane]
                if numbers.weighted and not its:
                    bound[lane] = at.bounds[row[lane]]
                    ended = ended or bound[lane] == 0.0
            if not ended:
                tries[lane] = 0
                which[lane] = uint64(walk) | uint64(step[lane]) << uint64(_BITS)
                lane += 1
            elif begun < len(walks):
                slot[lane], node[lane], previous[lane] = begun, starts[begun], -1
                step[lane], now[lane] = 1, _NEVER
                paths[begun, 0] = starts[begun]
                begun += 1
            else:
                live -= 1
                slot[lane], node[lane], previous[lane] = slot[live], node[live], previous[live]
                step[lane], now[lane], row[lane] = step[live], now[live], row[live]
                low[lane], high[lane], bound[lane] = low[live], high[live], bound[live]
                draws[lane], tries[lane], which[lane] = draws[live], tries[live], which[live]

        for lane in range(live):
            a, b, c, d = philox4x32(numbers.seed, uint64(_STEP), which[lane], uint64(draws[lane]))
            wide[lane], word2[lane], coin[lane] = uint64(b) << _HALF | uint64(a), c, d
        for lane in range(live):
            edge[lane] = low[lane] + scaled(wide[lane], high[lane] - low[lane])
            target[lane] = at.indices[edge[lane]]
            if alias:
                share[lane] = at.chance[edge[lane]]
            elif numbers.weighted:
                share[lane] = at.weights[edge[lane]]

        for lane in range(live):
            draws[lane] += 1
            chosen = edge[lane]
            number, n = walks[slot[lane]], draws[lane] - 1
            if its:
                chosen, coin[lane], _ = propose(
                    at, numbers, row[lane], low[lane], high[lane], number, step[lane], n
                )
            elif alias:
                if np.float64(word2[lane]) >= share[lane] * _ROUND:
                    chosen = low[lane] + np.int64(at.other[chosen])
            elif numbers.weighted and np.float64(word2[lane]) * bound[lane] >= share[lane] * _ROUND:
                tries[lane] += 1
                if tries[lane] < _TRIALS:
                    continue
                chosen, coin[lane], draws[lane] = decide_exactly(
                    at, numbers, bound[lane], low[lane], high[lane], number, step[lane], draws[lane]
                )
            if chosen < 0:  # nothing here has weight: the walk ends
                step[lane], draws[lane] = numbers.length, 0
                continue
            target[lane] = at.indices[chosen]
            if previous[lane] >= 0 and numbers.second_order:
                tries[lane] = 0
                verdict = verdict_of_coin(numbers, coin[lane], target[lane] == previous[lane])
                if verdict < 0:
                    near = is_neighbour(at, numbers, previous[lane], target[lane])
                    verdict = verdict_of_row(numbers, coin[lane], near)
                if verdict == 0:
                    continue
            previous[lane], node[lane] = node[lane], target[lane]
            if numbers.dated:
                now[lane] = at.times[chosen]
            paths[slot[lane], step[lane]] = target[lane]
            step[lane] += 1
            draws[lane] = 0
