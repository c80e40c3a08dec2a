"""Reservoir sampling in Numba: a row is read once, and only one block of it is kept.

The edges of a block are weighed; the block replaces the kept one with a chance of its share in the
weight so far. At the end one more draw picks an edge of the kept block.

A user's expression becomes a Numba function, and with it a separate kernel; without one, ``weigh``
is None and the kernel comes from the cache on disk.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import uint64

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer, pointers
from penstock.kernels.cpu.walk.part import (
    ENDED,
    HERE,
    arrive,
    leave,
    part_pointers,
    place,
    row_of,
    slot_of,
)
from penstock.kernels.cpu.walk.step import ending, first_not_below, in_row, words
from penstock.kernels.expression import Expression
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import NEVER

BLOCK = 64
_STEP = int(Stream.WALK_STEP)
_NEVER = np.int64(NEVER)
_HALF = np.uint64(32)


@cache
def weigher(expression: str) -> Any:
    """Return an expression's compiled function of its seven names."""
    scope: dict[str, Any] = {}
    exec(Expression.parse(expression).python_source("weigh"), scope)
    return njit(nogil=True, error_model="numpy")(scope["weigh"])


def walk_by_reservoir(
    arrays: Any,
    numbers: Any,
    walks: Array,
    starts: Array,
    paths: Array,
    part: Any,
    expression: str | None,
) -> None:
    """Write the nodes of each walk into paths."""
    arguments = arrays, numbers, walks, starts, paths, part
    if expression is None:
        _walk(*arguments, None)
    else:
        _not_kept()(*arguments, weigher(expression))


@cache
def _not_kept() -> Any:
    # A function's name is not valid in other processes, so these kernels are not cached on disk.
    return njit(nogil=True, error_model="numpy")(_walk.py_func)


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(
    arrays: Any, numbers: Any, walks: Array, starts: Array, paths: Array, part: Any, weigh: Any
) -> None:
    at, walkers, table = pointers(arrays), part_pointers(part), pointer(paths)
    values, kept = np.empty(BLOCK), np.empty(BLOCK)
    for i in range(len(walks)):
        node, previous, step, _, now = arrive(at, numbers, walkers, i, starts[i], table, None)
        to = HERE
        while True:
            end = ending(numbers, walks[i], step) if step < numbers.length else 1
            if end == 2:
                node, previous, now = np.int64(starts[i]), np.int64(-1), _NEVER
            else:
                to = ENDED if end == 1 else place(walkers, node)
                if to != HERE:
                    break
                edge = take_by_reservoir(
                    at,
                    numbers,
                    row_of(walkers, node),
                    previous,
                    step,
                    now,
                    walks[i],
                    values,
                    kept,
                    weigh,
                )
                if edge < 0:
                    to = ENDED
                    break
                previous, node = node, np.int64(at.indices[edge])
                if numbers.dated:
                    now = at.times[edge]
            table[slot_of(walkers, i) * numbers.length + step] = node
            step += 1
        leave(walkers, i, node, previous, step, 0, now, to)


# Not cached on disk: it is part of cached kernels.
@njit(error_model="numpy")
def take_by_reservoir(
    at: Any,
    numbers: Any,
    node: Any,
    previous: Any,
    step: Any,
    now: Any,
    walk: Any,
    values: Array,
    kept: Array,
    weigh: Any,
) -> Any:
    """Return the edge that the step takes, or -1; ``node`` is the place of the node's row.

    values, kept  (BLOCK,) float64, scratch
    """
    wanted = np.int64(-1)
    if numbers.schema > 0:
        if step > numbers.schema and not numbers.cyclic:
            return np.int64(-1)
        wanted = at.schema[(step - 1) % numbers.schema]
    earliest = max(now, numbers.earliest) if numbers.timed else numbers.earliest
    place = near_end = np.int64(0)
    looks = numbers.looks_near and previous >= 0
    if looks:
        place, near_end = at.near_indptr[previous], at.near_indptr[previous + 1]

    running = held = 0.0  # the weight of all blocks so far, and of the kept one
    kept_at: Any = np.int64(-1)
    spare, spares, n = uint64(0), 0, 0  # a draw serves two blocks
    end_of_row = at.indptr[node + 1]
    for begin in range(at.indptr[node], end_of_row, BLOCK):
        total = 0.0
        size = min(BLOCK, end_of_row - begin)
        for k in range(size):
            edge = begin + k
            values[k] = 0.0
            if wanted >= 0 and at.relations[edge] != wanted:
                continue
            if numbers.dated and (at.times[edge] < earliest or at.times[edge] > numbers.latest):
                continue
            target = np.int64(at.indices[edge])
            near = False
            if looks:
                if numbers.sorted:
                    place = _gallop(at.near_indices, place, near_end, target)
                    near = place < near_end and at.near_indices[place] == target
                else:
                    near = in_row(at.near_indptr, at.near_indices, previous, target)
            returns = target == previous
            value = np.float64(at.weights[edge]) if numbers.weighted else 1.0
            if weigh is not None:
                value = weigh(
                    value,
                    at.relations[edge] if numbers.related else 0,
                    at.degrees[target] if numbers.has_degrees else 0,
                    step,
                    returns,
                    near,
                    at.labels[target] if numbers.has_labels else 0,
                )
            elif looks:
                if returns:
                    value *= numbers.return_factor
                elif not near:
                    value *= numbers.far_factor
            values[k] = value
            total += value
        if total > 0.0:
            running += total
            if kept_at >= 0:
                if spares == 0:
                    a, b, c, d = words(numbers.seed, _STEP, walk, step, n)
                    word, spare, spares, n = b << _HALF | a, d << _HALF | c, 1, n + 1
                else:
                    word, spares = spare, 0
                if _unit(word) * running >= total:
                    continue
            kept_at, held = begin, total
            values, kept = kept, values
    if kept_at < 0:
        return np.int64(-1)
    a, b, _, _ = words(numbers.seed, _STEP, walk, step, n)
    left = _unit(b << _HALF | a) * held
    chosen = np.int64(-1)
    for k in range(min(BLOCK, end_of_row - kept_at)):
        if kept[k] > 0.0:
            chosen = kept_at + k  # also if rounding leaves a rest
            left -= kept[k]
            if left < 0.0:
                break
    return chosen


@njit(cache=True, error_model="numpy")
def _unit(word: Any) -> Any:
    return np.float64(word >> uint64(11)) * 2.0**-53


@njit(cache=True, error_model="numpy")
def _gallop(indices: Any, place: Any, end: Any, target: Any) -> Any:
    stride = 1
    while place + stride < end and indices[place + stride] < target:
        place += stride
        stride *= 2
    return first_not_below(indices, place, min(end, place + stride + 1), target)
