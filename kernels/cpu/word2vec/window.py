"""One window: a step on the rows of its context and its targets, and copies of rows.

scratch.py has the rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import (
    at_address,
    load,
    moved,
    plus,
    plus_times,
    prefetch,
    store,
    zeros,
)
from penstock.kernels.cpu.vector.blocks import BLOCK, PAIRS, scores, step, step_of_blocks
from penstock.kernels.cpu.vector.registers import LANES
from penstock.kernels.cpu.vector.sigmoids import PADDED, collect, gradients

_TOGETHER = 100  # factors, each 1 to 2, whose product fits into float32


@njit(cache=True)
def train_window(
    work: Any,
    lr: Any,
    count: int,
    targets: int,
    most: int,
    chunks: int,
    together: int,
) -> tuple[float, int]:
    """Take a step; return the loss, and the number of factors still to be added to it.

    The first target is the centre. ``most``: the largest weight of a pair.
    """
    x, y, before_x, before_y = work.rows_x, work.rows_y, work.before_x, work.before_y
    pairs = work.pairs
    score, gradient = pairs, moved(pairs, 4 * PADDED)
    factor, excess = moved(pairs, 5 * PADDED), moved(pairs, 6 * PADDED)
    product, total = moved(pairs, 8 * PADDED), moved(pairs, 9 * PADDED)
    x_blocks, y_blocks = (count + BLOCK - 1) // BLOCK, (targets + BLOCK - 1) // BLOCK
    alone = x_blocks == 1 and y_blocks == 1
    if not alone:
        for i in range(x_blocks * BLOCK):
            _copy(at_address(pairs, x[i]), moved(work.x_before, i * chunks * LANES), chunks)
        for j in range(y_blocks * BLOCK):
            _copy(at_address(pairs, y[j]), moved(work.y_before, j * chunks * LANES), chunks)
    loss = 0.0
    for p in range(x_blocks):
        left, left_before = moved(x, p * BLOCK), moved(before_x, p * BLOCK)
        for q in range(y_blocks):
            right, right_before = moved(y, q * BLOCK), moved(before_y, q * BLOCK)
            weight = moved(pairs, 7 * PADDED)
            if most > 1 or count < (p + 1) * BLOCK or targets < (q + 1) * BLOCK:
                weight = moved(pairs, 3 * PADDED)
                for i in range(BLOCK):
                    for j in range(BLOCK):
                        weight[i * BLOCK + j] = (
                            work.times_x[p * BLOCK + i] * work.times_y[q * BLOCK + j]
                        )
            sign = moved(pairs, (1 if q == 0 else 2) * PADDED)
            if alone:
                scores(left, right, chunks, score)
            else:
                scores(left_before, right_before, chunks, score)
            gradients(score, sign, weight, lr, gradient, factor, excess)
            if most > _TOGETHER:
                for k in range(PAIRS):
                    loss += weight[k] * (math.log(np.float64(factor[k])) + excess[k])
            else:
                if together + most > _TOGETHER:
                    loss += flush(pairs)
                    together = 0
                collect(factor, excess, weight, most, product, total)
                together += most
            if alone:
                step(left, right, chunks, gradient)
            else:
                step_of_blocks(left_before, left, right_before, right, chunks, gradient)
    return loss, together


@njit(cache=True)
def flush(pairs: Any) -> float:
    """Return the gathered loss of blocks, and reset it to 0."""
    loss = 0.0
    for k in range(PADDED):
        loss += math.log(np.float64(pairs[8 * PADDED + k])) + pairs[9 * PADDED + k]
        pairs[8 * PADDED + k] = 1
        pairs[9 * PADDED + k] = 0
    return loss


# -- rows ------------------------------------------------------------------------------------------


@njit(cache=True)
def take(source: Any, row: Any, dimension: int) -> None:
    """Copy a vector to a row; the rest of the row stays 0."""
    whole = dimension // LANES
    for chunk in range(whole):
        store(load(zeros(row, LANES), source, chunk * LANES), row, chunk * LANES)
    for k in range(whole * LANES, dimension):
        row[k] = source[k]


@njit(cache=True)
def give(to: Any, row: Any, first: Any, dimension: int) -> None:
    """Add a row's change to a vector: other threads may have changed it."""
    whole, less = dimension // LANES, np.float32(-1)
    for chunk in range(whole):
        at = chunk * LANES
        tile = zeros(row, LANES)
        gained = plus_times(load(tile, row, at), less, load(tile, first, at))
        store(plus(load(tile, to, at), gained), to, at)
    for k in range(whole * LANES, dimension):
        to[k] += row[k] - first[k]


@njit(cache=True)
def _copy(source: Any, to: Any, chunks: int) -> None:
    for chunk in range(chunks):
        store(load(zeros(to, LANES), source, chunk * LANES), to, chunk * LANES)


@njit(cache=True)
def ask(source: Any, dimension: int) -> None:
    """Prefetch a vector."""
    for at in range(0, dimension, LANES):
        prefetch(zeros(source, 1), source, at)
