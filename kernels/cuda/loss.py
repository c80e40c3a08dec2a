"""Losses on the GPU; names and meaning are naive/loss.py's. Sums have a fixed order."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import (
    flat,
    matrix,
    partial_sums,
    power_of_2,
    summing_blocks,
    vector,
)
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.gnn_rules import Graded

_FILE = "loss"
_THREADS = 256
_SUMS = 12  # three splits, four sums each
# Lanes per row, and the most logits per lane, of the available kernels. A whole warp reads rows of
# more classes several times.
_TEAMS = {"float": ((2, 8), (4, 8), (8, 6), (8, 8), (16, 8), (32, 8)), "double": ((32, 8),)}
_TEAM_BLOCKS = 512  # of rows that stay in registers: about four on each multiprocessor of an H200


def cross_entropy(rows: Graded, labels: DeviceArray, first: int, last: int) -> None:
    """Softmax cross-entropy against ``labels``, (rows,) class numbers; below 0 is ignored."""
    logits = rows.values
    kind, classes = f"{c_name(logits)}, {c_name(labels)}", logits.shape[1]
    truth = (cp.ascontiguousarray(labels),)
    team = next((team for team in _TEAMS[c_name(logits)] if classes <= team[0] * team[1]), None)
    given = rows, truth, first, last
    if team:
        kernel = f"cross_entropy<{kind}, {team[0]}, {team[1]}>"
        shape = (np.int32(classes),)
        _run(kernel, *given, lanes=team[0], shape=shape, most=_TEAM_BLOCKS)
    else:
        kernel, sizes = f"wide_cross_entropy<{kind}>", (np.int32(classes), np.int32(32))
        _run(kernel, *given, lanes=32, shape=sizes)


def binary_cross_entropy(
    rows: Graded, indptr: DeviceArray, classes: DeviceArray, first: int, last: int
) -> None:
    """Sigmoid cross-entropy of every class; row r has ``classes[indptr[r]:indptr[r + 1]]``."""
    logits = rows.values
    kernel = f"binary_cross_entropy<{c_name(logits)}, {c_name(classes)}>"
    truth = (cp.ascontiguousarray(indptr, np.int64), cp.ascontiguousarray(classes))
    lanes = power_of_2(logits.shape[1])
    shape = (np.int32(logits.shape[1]), np.int32(lanes))
    _run(kernel, rows, truth, first, last, lanes=lanes, shape=shape)


def squared_error(rows: Graded, truth: DeviceArray, first: int, last: int) -> None:
    """Squared error of the only column against ``truth``, (rows,); NaN is ignored."""
    values: Any = rows.values
    _run(f"squared_error<{c_name(values)}>", rows, (vector(truth, values),), first, last)


def _run(
    kernel: str,
    rows: Graded,
    truth: tuple[DeviceArray, ...],
    first: int,
    last: int,
    *,
    lanes: int = 1,
    shape: tuple[np.int32, ...] = (),
    most: int | None = None,
) -> None:
    """Run a kernel in which several lanes share a row, in at most ``most`` blocks."""
    if last <= first:
        return
    values, splits, scale, grad, sums = rows
    blocks = summing_blocks(last - first, 4 * _THREADS // lanes)
    blocks = min(blocks, most or blocks)
    partial = partial_sums(blocks * _SUMS)
    launch_blocks(
        _FILE,
        kernel,
        blocks,
        _THREADS,
        *(*matrix(values), *truth, cp.ascontiguousarray(splits, np.int8)),
        *(values.dtype.type(scale), *matrix(grad), np.int64(first), np.int64(last)),
        *(*shape, partial),
    )
    arguments = (partial, np.int32(blocks), flat(sums, np.float64))
    launch(_FILE, "add_losses", _SUMS * 32, *arguments)
