"""Gradients of the same row are summed, and the row is changed once, in Numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import stride
from penstock.kernels.cpu.embed.workspace import Workspace
from penstock.kernels.cpu.vector import moved, pointer
from penstock.kernels.embed_rules import EmbedRules, Optimizer, Table

_ADAGRAD, _SGD = int(Optimizer.ADAGRAD), int(Optimizer.SGD)
_PIECES = 64  # the pieces do not affect results


class Duplicates:
    """Which of many gradients belong to the same row, found before they are computed.

    rows   (distinct,) rows, in the order in which they are first named
    start  (distinct + 1,) where the gradients of each begin in ``order``
    order  (gradients,) places of gradients, ascending for each row
    """

    def __init__(self, work: Workspace, name: str, ids: Array, rows: int) -> None:
        count = len(ids)
        self.rows = work.shared(f"{name} rows", (count,), np.int64)
        self.start = work.shared(f"{name} start", (count + 1,), np.int64)
        self.order = work.shared(f"{name} order", (count,), np.int64)
        slots = work.shared(f"{name} slots", (count,), np.int32)
        self.distinct = _group(ids, work.marks(rows), slots, self.rows, self.start, self.order)


def update(
    work: Workspace,
    table: Table,
    found: Duplicates,
    slopes: Array,
    rules: EmbedRules,
    lr: float,
    number: int,
) -> None:
    """Change every row once, by the sum of its gradients: (gradients, width) float32."""
    distinct = found.distinct
    start = found.start[: distinct + 1]
    pieces = min(_PIECES, distinct)
    # Rows cost too, so that pieces of unique rows do not take longer.
    cost = start + 4 * np.arange(distinct + 1)
    targets = np.linspace(0, cost[-1], pieces + 1)
    cuts = np.searchsorted(cost, targets)
    cuts[-1] = distinct
    grown = 1.0 if rules.optimizer != Optimizer.ADAM else 1 / (1 - rules.beta2**number)
    speed = lr if rules.optimizer != Optimizer.ADAM else lr / (1 - rules.beta1**number)

    betas = rules.beta1, 1 - rules.beta1, rules.beta2, 1 - rules.beta2
    numbers = tuple(map(np.float32, (speed, rules.epsilon, *betas, grown)))
    groups, written = (found.rows, start, found.order), (table.values, table.state)

    def change(piece: int) -> None:
        first, last = cuts[piece], cuts[piece + 1]
        _change(int(rules.optimizer), written, groups, slopes, first, last, numbers)

    work.each(change, pieces)


@njit(cache=True, nogil=True)
def _group(ids: Array, marks: Array, slots: Array, rows: Array, start: Array, order: Array) -> int:
    """Group gradients by row; return the number of rows. Marks are -1 before and after."""
    distinct = 0
    for i in range(len(ids)):
        slot = marks[ids[i]]
        if slot < 0:
            slot = distinct
            marks[ids[i]], rows[slot], start[slot] = slot, ids[i], 0
            distinct += 1
        slots[i] = slot
        start[slot] += 1
    total = 0
    for slot in range(distinct):
        total, start[slot] = total + start[slot], total
        marks[rows[slot]] = -1
    for i in range(len(ids)):
        order[start[slots[i]]] = i
        start[slots[i]] += 1
    for slot in range(distinct, 0, -1):
        start[slot] = start[slot - 1]
    start[0] = 0
    return distinct


@njit(cache=True, nogil=True, error_model="numpy")
def _change(
    optimizer: int,
    table: Any,
    groups: Any,
    slopes: Array,
    first: int,
    last: int,
    numbers: Any,
) -> None:
    values, state = table
    rows, start, order = groups
    width = slopes.shape[1]
    total = np.empty(width, np.float32)
    for slot in range(first, last):
        g = pointer(slopes)
        begin, end = start[slot], start[slot + 1]
        if end - begin == 1:
            g = moved(g, order[begin] * width)
        else:
            _sum(pointer(slopes), pointer(order), begin, end, pointer(total), width)
            g = pointer(total)
        x = moved(pointer(values), rows[slot] * stride(values))
        if optimizer == _SGD:
            _sgd(x, g, width, numbers)
        else:
            s = moved(pointer(state), rows[slot] * stride(state))
            if optimizer == _ADAGRAD:
                _adagrad(x, s, g, width, numbers)
            else:
                _adam(x, s, g, width, numbers)


@njit(cache=True)
def _sum(slopes: Any, order: Any, begin: Any, end: Any, total: Any, width: Any) -> None:
    for f in range(width):
        total[f] = np.float32(0)
    for i in range(begin, end):
        g = moved(slopes, order[i] * width)
        for f in range(width):
            total[f] += g[f]


@njit(cache=True, fastmath={"contract"})
def _sgd(x: Any, g: Any, width: Any, numbers: Any) -> None:
    lr = numbers[0]
    for f in range(width):
        x[f] -= lr * g[f]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _adagrad(x: Any, s: Any, g: Any, width: Any, numbers: Any) -> None:
    lr, epsilon = numbers[0], numbers[1]
    for f in range(width):
        grown = s[f] + g[f] * g[f]
        s[f] = grown
        x[f] -= lr * g[f] / (np.float32(math.sqrt(grown)) + epsilon)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _adam(x: Any, s: Any, g: Any, width: Any, numbers: Any) -> None:
    lr, epsilon, beta1, rest1, beta2, rest2, grown = numbers
    for f in range(width):
        mean = beta1 * s[f] + rest1 * g[f]
        square = beta2 * s[width + f] + rest2 * g[f] * g[f]
        s[f], s[width + f] = mean, square
        x[f] -= lr * mean / (np.float32(math.sqrt(square * grown)) + epsilon)
