"""One window: a step on the rows of its context and its targets, and how rows come and go.

Rows are in chunks, see tiles.py; what they lie in is in scratch.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.exp import exponential
from penstock.kernels.cpu.vector import load, moved, plus, plus_times, prefetch, store, zeros
from penstock.kernels.cpu.word2vec.scratch import PADDED
from penstock.kernels.cpu.word2vec.tiles import BLOCK, LANES, PAIRS, scores, step, step_of_blocks

_TOGETHER = 100  # blocks whose factors, each 1 to 2, have a product in float32


@njit(cache=True)
def train_window(
    work: Any,
    rate: Any,
    count: int,
    targets: int,
    repeated: bool,
    x_stride: int,
    y_stride: int,
    dimension: int,
    together: int,
) -> tuple[float, int]:
    """Take a step; return loss, and of how many blocks the loss is still to be added.

    Rows of the context are in ``x`` and those of targets in ``y``, the centre's first.
    """
    x, y, slots = work.x, work.y, work.slots
    pairs = work.pairs
    score, gradient = pairs, moved(pairs, 4 * PADDED)
    factor, excess = moved(pairs, 5 * PADDED), moved(pairs, 6 * PADDED)
    chunks = (dimension + LANES - 1) // LANES
    x_blocks, y_blocks = (count + BLOCK - 1) // BLOCK, (targets + BLOCK - 1) // BLOCK
    for j in range(targets, y_blocks * BLOCK):
        work.times_y[j] = 0
        _clear(y, j, y_stride, chunks)
    for i in range(count, x_blocks * BLOCK):
        slots[i], work.times_x[i] = x_stride - 1, 0
    alone = x_blocks == 1 and y_blocks == 1
    x_before, y_before = work.x_before, work.y_before
    if not alone:
        for i in range(x_blocks * BLOCK):
            copy_row(x, slots[i], x_before, slots[i], x_stride, chunks)
        for j in range(y_blocks * BLOCK):
            copy_row(y, j, y_before, j, y_stride, chunks)
    loss = 0.0
    for p in range(x_blocks):
        rows = moved(slots, p * BLOCK)
        for q in range(y_blocks):
            right = moved(y, q * BLOCK * LANES)
            weight = moved(pairs, 7 * PADDED)
            if repeated or count < (p + 1) * BLOCK or targets < (q + 1) * BLOCK:
                weight = moved(pairs, 3 * PADDED)
                for i in range(BLOCK):
                    for j in range(BLOCK):
                        weight[i * BLOCK + j] = (
                            work.times_x[p * BLOCK + i] * work.times_y[q * BLOCK + j]
                        )
            sign = moved(pairs, (1 if q == 0 else 2) * PADDED)
            if alone:
                scores(x, rows, x_stride, right, y_stride, chunks, score)
            else:
                before = moved(y_before, q * BLOCK * LANES)
                scores(x_before, rows, x_stride, before, y_stride, chunks, score)
            _gradients(score, sign, weight, rate, gradient, factor, excess)
            if repeated:
                for k in range(PAIRS):
                    loss += weight[k] * (math.log(np.float64(factor[k])) + excess[k])
            else:
                _collect(factor, excess, moved(pairs, 8 * PADDED), moved(pairs, 9 * PADDED))
                together += 1
                if together == _TOGETHER:
                    loss += flush(pairs)
                    together = 0
            if alone:
                step(x, rows, x_stride, right, y_stride, chunks, gradient)
            else:
                before = moved(y_before, q * BLOCK * LANES)
                step_of_blocks(
                    x_before, x, rows, x_stride, before, right, y_stride, chunks, gradient
                )
    return loss, together


@njit(cache=True, error_model="numpy")  # a look for divisions by 0 would forbid vectors
def _gradients(
    score: Any, sign: Any, weight: Any, rate: Any, gradient: Any, factor: Any, excess: Any
) -> None:
    """Write what a block's pairs add, and their loss: ``log(factor) + excess``."""
    one, zero = np.float32(1), np.float32(0)
    for k in range(PADDED):
        z = sign[k] * score[k]  # the loss is log(1 + exp(z)), the gradient -sigmoid(z)
        e = exponential(-abs(z))
        above = one + e
        sigmoid = (e if z < zero else one) / above
        counts = weight[k] > zero
        gradient[k] = -sign[k] * weight[k] * rate * sigmoid if counts else zero
        factor[k] = above if counts else one
        excess[k] = zero if z < zero or not counts else z


@njit(cache=True)
def _collect(factor: Any, excess: Any, product: Any, total: Any) -> None:
    """Add a block's loss to that of others: sums across it, and logarithms, are left for later."""
    for k in range(PADDED):
        product[k] *= factor[k]
        total[k] += excess[k]


@njit(cache=True)
def flush(pairs: Any) -> float:
    """Return the loss of blocks that was gathered, and begin anew."""
    loss = 0.0
    for k in range(PADDED):
        loss += math.log(np.float64(pairs[8 * PADDED + k])) + pairs[9 * PADDED + k]
        pairs[8 * PADDED + k] = 1
        pairs[9 * PADDED + k] = 0
    return loss


# -- rows ------------------------------------------------------------------------------------------


@njit(cache=True)
def take(source: Any, rows: Any, row: int, stride: int, dimension: int) -> None:
    """Copy a vector to a row in chunks."""
    whole = dimension // LANES
    for chunk in range(whole):
        tile = load(zeros(rows, LANES), source, chunk * LANES)
        store(tile, rows, (chunk * stride + row) * LANES)
    for k in range(dimension - whole * LANES):
        rows[(whole * stride + row) * LANES + k] = source[whole * LANES + k]


@njit(cache=True)
def put(to: Any, rows: Any, row: int, stride: int, dimension: int) -> None:
    """Copy a row in chunks to a vector."""
    whole = dimension // LANES
    for chunk in range(whole):
        tile = load(zeros(rows, LANES), rows, (chunk * stride + row) * LANES)
        store(tile, to, chunk * LANES)
    for k in range(dimension - whole * LANES):
        to[whole * LANES + k] = rows[(whole * stride + row) * LANES + k]


@njit(cache=True)
def give(to: Any, rows: Any, first: Any, row: int, stride: int, dimension: int) -> None:
    """Add to a vector what its row gained: others may have added to it meanwhile."""
    whole, less = dimension // LANES, np.float32(-1)
    for chunk in range(whole):
        at = (chunk * stride + row) * LANES
        tile = zeros(rows, LANES)
        gained = plus_times(load(tile, rows, at), less, load(tile, first, at))
        store(plus(load(tile, to, chunk * LANES), gained), to, chunk * LANES)
    for k in range(dimension - whole * LANES):
        at = (whole * stride + row) * LANES + k
        to[whole * LANES + k] += rows[at] - first[at]


@njit(cache=True)
def copy_row(source: Any, from_row: int, to: Any, to_row: int, stride: int, chunks: int) -> None:
    """Copy a row in chunks."""
    for chunk in range(chunks):
        tile = load(zeros(to, LANES), source, (chunk * stride + from_row) * LANES)
        store(tile, to, (chunk * stride + to_row) * LANES)


@njit(cache=True)
def _clear(rows: Any, row: int, stride: int, chunks: int) -> None:
    for chunk in range(chunks):
        store(zeros(rows, LANES), rows, (chunk * stride + row) * LANES)


@njit(cache=True)
def ask(source: Any, dimension: int) -> None:
    """Ask for a vector that will be read."""
    for at in range(0, dimension, 64):
        prefetch(zeros(source, 64), source, at)
