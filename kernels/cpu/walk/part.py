"""Walkers that move between the parts of a graph, for kernels: location, arrival and departure.

For a whole graph, a part that no walker leaves, ``part`` is None. Numba compiles that case
separately, without the code for parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointers
from penstock.kernels.cpu.walk.arrays import frozen
from penstock.kernels.cpu.walk.step import in_row, verdict_of_coin, verdict_of_row
from penstock.kernels.walk_rules import NEVER, Owned, Walkers

ENDED, HERE = np.int64(-1), np.int64(-2)  # not ranks
_NEVER = np.int64(NEVER)


class Part(NamedTuple):
    """``Owned``, and the changing arrays of ``Walkers``, for a kernel."""

    rank: Any
    assignment: Array
    local: Array
    slot: Array
    node: Array
    previous: Array
    candidate: Array
    coin: Array
    step: Array
    draw: Array
    now: Array
    then: Array
    to: Array


def part_of(owned: Owned, walkers: Walkers) -> Part:
    """Return a part and its walkers for kernels."""
    state = {name: getattr(walkers, name) for name in Part._fields[3:]}
    assert all(array.flags.c_contiguous for array in state.values())  # pointers have no strides
    assignment, local = frozen(owned.assignment, np.int32), frozen(owned.local, None)
    return Part(np.int64(owned.rank), assignment, local, **state)


# Not cached on disk: they are part of cached kernels.
@njit(error_model="numpy")
def part_pointers(part: Any) -> Any:
    """Return a Part of pointers, valid while the arrays live."""
    if part is None:
        return None
    return pointers(part)


@njit(error_model="numpy")
def place(part: Any, node: Any) -> Any:
    """Return HERE, or the part of a node's row."""
    if part is None:
        return HERE
    rank = np.int64(part.assignment[node])
    return HERE if rank == part.rank else rank


@njit(error_model="numpy")
def row_of(part: Any, node: Any) -> Any:
    """Return the position of the row of a node that is HERE."""
    if part is None:
        return np.int64(node)
    return np.int64(part.local[node])


@njit(error_model="numpy")
def slot_of(part: Any, i: Any) -> Any:
    """Return the i-th walker's row in the table of paths."""
    if part is None:
        return i
    return part.slot[i]


@njit(error_model="numpy")
def arrive(
    at: Any, numbers: Any, part: Any, i: Any, start: Any, table: Any, second_order: Any
) -> Any:
    """Return the i-th walker, its candidate judged: node, previous, step, -draws, now."""
    if part is None:
        table[i * numbers.length] = start
        return np.int64(start), np.int64(-1), np.int64(1), np.int64(0), _NEVER
    node, previous = np.int64(part.node[i]), np.int64(part.previous[i])
    step, draws, now = np.int64(part.step[i]), -np.int64(part.draw[i]), part.now[i]
    if second_order is not None:
        candidate = np.int64(part.candidate[i])
        if candidate >= 0:
            part.candidate[i] = -1
            if judge(at, numbers, part, previous, candidate, part.coin[i]) == 1:
                previous, node, now = node, candidate, part.then[i]
                table[part.slot[i] * numbers.length + step] = node
                step, draws = step + 1, np.int64(0)
    return node, previous, step, draws, now


@njit(error_model="numpy")
def ask(part: Any, i: Any, candidate: Any, coin: Any, then: Any) -> None:
    """Store a candidate of the i-th walker, which another part must judge."""
    part.candidate[i], part.coin[i], part.then[i] = candidate, coin, then


@njit(error_model="numpy")
def leave(
    part: Any, i: Any, node: Any, previous: Any, step: Any, draws: Any, now: Any, to: Any
) -> None:
    """Store the state of the i-th walker, if any, which cannot continue here."""
    if part is not None and i >= 0:
        part.node[i], part.previous[i], part.now[i] = node, previous, now
        part.step[i], part.draw[i], part.to[i] = step, draws, to


@njit(forceinline=True, error_model="numpy")
def judge(at: Any, numbers: Any, part: Any, previous: Any, candidate: Any, coin: Any) -> Any:
    """Return 1 or 0, a candidate taken or not; -1 if the previous node's part must decide."""
    verdict = verdict_of_coin(numbers, coin, candidate == previous)
    if verdict >= 0:
        return verdict
    here = place(part, previous) == HERE
    there = numbers.symmetric and place(part, candidate) == HERE
    if not here and not there:
        return -1
    indptr, indices = at.near_indptr, at.near_indices
    row, target = row_of(part, previous), candidate
    other = row_of(part, candidate)
    if not here or (there and indptr[other + 1] - indptr[other] < indptr[row + 1] - indptr[row]):
        row, target = other, previous
    return verdict_of_row(numbers, coin, in_row(indptr, indices, row, target))
